// Resource usage of compiled pipelines, as reported by the driver (VK_KHR_pipeline_executable_properties).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace pumice {

class Context;
class Pipeline;

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

// Returns the executables of a pipeline with the captured data; empty if it was created without capture.
std::vector<PipelineExecutable> query_executables(Context& context, const Pipeline& pipeline);

// Register spills of a kernel, as far as the driver reports them.
struct RegisterSpills {
  std::optional<uint64_t> number;  // registers or instructions, depending on the driver
  std::optional<uint64_t> bytes;   // bytes of local memory per invocation, which also holds dynamically indexed arrays

  std::optional<uint64_t> amount() const { return number ? number : bytes; }
};
RegisterSpills find_register_spills(const std::vector<PipelineExecutable>& executables);

}  // namespace pumice
