// Resource usage of compiled pipelines, as reported by the driver (VK_KHR_pipeline_executable_properties).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

struct VkPipeline_T;

namespace pumice {

class Context;

// A statistic, with the driver's name and description.
struct ExecutableStatistic {
  std::string name, description;
  std::variant<bool, int64_t, uint64_t, double> value;
};

// An internal representation of the executable: assembly or an earlier stage.
struct ExecutableRepresentation {
  std::string name, description;
  bool is_text = false;
  std::string content;  // text has no terminating zero
};

struct PipelineExecutable {
  std::string name, description;
  uint32_t subgroup_size = 0;  // 0: not reported
  std::vector<ExecutableStatistic> statistics;
  std::vector<ExecutableRepresentation> representations;
};

inline constexpr const char* kExecutablesFeature = "pipelineExecutableInfo";

// Throws UnsupportedError naming the driver and the feature if the driver does not report executables.
void check_executables_supported(const Context& context);

// Data that the driver captures about a pipeline's executables: none, statistics only, or also internal representations.
enum class CaptureMode : uint8_t { none, statistics, all };

// Returns the executables of a pipeline with the captured data; empty if it was created without capture.
std::vector<PipelineExecutable> query_executables(Context& context, VkPipeline_T* pipeline, CaptureMode capture);

// The statistics that drivers report under names of their own; nullopt if this driver does not report one. With several executables, the
// maximum.
struct PipelineStatistics {
  std::optional<uint64_t> registers;      // per invocation, or per subgroup on some drivers
  std::optional<uint64_t> spills;         // registers or instructions, or `scratch_bytes` if the driver reports no number
  std::optional<uint64_t> scratch_bytes;  // local memory per invocation, which also holds dynamically indexed arrays
  std::optional<uint64_t> shared_bytes;   // shared memory per workgroup
  std::optional<uint64_t> occupancy;      // resident subgroups per compute unit, in the driver's own units
  std::optional<uint64_t> code_bytes;     // machine code
  std::optional<uint64_t> instructions;   // machine instructions
};
PipelineStatistics summarize_statistics(const std::vector<PipelineExecutable>& executables);

// A pipeline of a compile-only context.
struct PipelineRecord {
  std::string name, key;           // of the kernel; of the pipeline, as in list_distinct_pipelines()
  std::string storage, constants;  // of the kernel's variant: storage mode, and specialization constants "NAME=value ..."
  std::array<uint32_t, 3> local_size{1, 1, 1};
  double compile_seconds = 0;
  std::vector<PipelineExecutable> executables;  // empty if the driver reports none
  std::string failure;                          // why there is no pipeline; empty if there is one
};

}  // namespace pumice
