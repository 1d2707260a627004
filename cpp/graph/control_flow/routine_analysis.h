// Infers the outputs of a routine for known input shapes, and the size of its recording, without running it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/control_flow/control_flow_program.h"

namespace pumice {

inline constexpr size_t kInnerCopies = 8;  // copies of an inner loop's iteration per iteration of the outer loop

class RoutineAnalysis {
 public:
  explicit RoutineAnalysis(const ControlFlowProgram& program) : program_(program) {}
  // Infers the output descriptions of a routine. Returns false if the host has to read a value or the recording would be too large. Throws
  // GraphError, BindingError or UnsupportedError if a region cannot be bound.
  bool analyze(size_t routine_index, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs, size_t depth = 0);
  // Analyses a WHILE with these initial values. Also returns false if their shapes change between iterations.
  bool analyze_loop(const RoutineStep& step, const std::vector<TensorDesc>& operands, size_t depth = 0);
  // Analyses an IF. `operands` excludes the condition.
  bool analyze_if(const RoutineStep& step, const std::vector<TensorDesc>& operands, std::vector<TensorDesc>& outputs, size_t depth = 0);

  bool fits_in_recording() const { return dispatches <= 512; }  // whether it fits in one recording
  size_t dispatches = 0;
  uint64_t arena_bytes = 0;
  std::vector<const RoutineStep*> inner;  // inner loops, in recording order

 private:
  bool bind_region(Region& region, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs);

  const ControlFlowProgram& program_;
};

}  // namespace pumice
