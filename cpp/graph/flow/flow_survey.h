// Finds what a routine makes for inputs of known shapes, and what it takes to record it, without running it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/flow/flow_program.h"

namespace pumice {

inline constexpr size_t kInnerCopies = 8;  // copies of an inner loop's iteration in one iteration of the loop around it

class FlowSurvey {
 public:
  explicit FlowSurvey(const FlowProgram& program) : program_(program) {}
  // Finds the descriptions of a routine's outputs; false where the host would have to look at something, or it is too much to record.
  // Throws GraphError, BindingError and UnsupportedError where a region cannot be bound.
  bool run(size_t number, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs, size_t depth = 0);
  // Surveys a loop that is entered with these values. False also where their shapes change.
  bool loop(const RoutineStep& step, const std::vector<TensorDesc>& given, size_t depth = 0);
  // Surveys an IF node. `given` excludes its condition.
  bool choice(const RoutineStep& step, const std::vector<TensorDesc>& given, std::vector<TensorDesc>& outputs, size_t depth = 0);

  bool is_small() const { return dispatches <= 512; }  // enough to be recorded as one
  size_t dispatches = 0;
  uint64_t arena_bytes = 0;
  std::vector<const RoutineStep*> inner;  // loops inside, in the order in which they are recorded

 private:
  bool bind(Region& region, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs);

  const FlowProgram& program_;
};

}  // namespace pumice
