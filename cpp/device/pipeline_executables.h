// A driver says of the programs that it made of a pipeline how they use the device (VK_KHR_pipeline_executable_properties).
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

// One number that a driver tells, in the driver's own words.
struct ExecutableStatistic {
  std::string name, description;
  std::variant<bool, int64_t, uint64_t, double> value;
};

// A form of the program inside the driver: its assembly, or what it was before.
struct ExecutableRepresentation {
  std::string name, description;
  bool is_text = false;
  std::string content;  // without the zero at the end of a text
};

struct PipelineExecutable {
  std::string name, description;
  uint32_t subgroup_size = 0;  // 0: not told
  std::vector<ExecutableStatistic> statistics;
  std::vector<ExecutableRepresentation> representations;
};

inline constexpr const char* kExecutablesFeature = "pipelineExecutableInfo";

// Throws UnsupportedError, naming the driver and the feature, where the driver tells nothing.
void check_tells_executables(const Context& context);

// The programs of a pipeline, with what it was made to capture; none of a pipeline that captures nothing.
std::vector<PipelineExecutable> executables_of(Context& context, const Pipeline& pipeline);

// Spills are what a kernel keeps in memory for want of registers, as far as the driver tells it.
struct Spills {
  std::optional<uint64_t> number;  // of registers, or of instructions
  std::optional<uint64_t> bytes;   // of an invocation's memory, in which arrays that are indexed lie as well

  std::optional<uint64_t> amount() const { return number ? number : bytes; }
};
Spills spills_of(const std::vector<PipelineExecutable>& executables);

}  // namespace pumice
