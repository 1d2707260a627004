#include "graph/control_flow/routine_analysis.h"

#include <algorithm>

namespace pumice {
namespace {

constexpr size_t kMaxNesting = 16;  // maximum nesting of IF and WHILE nodes

bool matches_declared_shape(const ProgramValue& declared, const TensorDesc& actual) {
  if (!declared.shape) return true;
  return std::ranges::equal(*declared.shape, actual.shape, [](int64_t a, int64_t b) { return a == kUnknownSize || a == b; });
}

}  // namespace

bool RoutineAnalysis::analyze(size_t routine_index, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs, size_t depth) {
  const Routine& routine = program_.routines[routine_index];
  std::vector<TensorDesc> descs(routine.read_by_host.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!matches_declared_shape(routine.input_values[i], inputs[i])) return false;
    descs[to_index(routine.inputs[i])] = inputs[i];
  }
  for (const RoutineConstant& constant : routine.constants) descs[to_index(constant.value)] = constant.host.desc;
  for (const RoutineStep& step : routine.steps) {
    std::vector<TensorDesc> operands, results;
    for (const ValueId input : step.inputs) operands.push_back(input == kAbsent ? TensorDesc() : descs[to_index(input)]);
    if (depth > kMaxNesting || !fits_in_recording()) return false;
    if (step.kind == RoutineStep::StepKind::region) {
      if (!bind_region(*step.region, operands, results)) return false;
    } else if (step.kind == RoutineStep::StepKind::while_) {
      const size_t before = dispatches;
      inner.push_back(&step);
      if (!analyze_loop(step, operands, depth + 1)) return false;
      dispatches = before + (dispatches - before + 2 * (step.carried + step.state) + 2) * kInnerCopies;
      results.assign(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(step.carried));
    } else {
      if (step.inputs[0] == kAbsent) return false;
      operands.erase(operands.begin());
      if (!analyze_if(step, operands, results, depth + 1)) return false;
    }
    for (size_t j = 0; j < step.outputs.size(); ++j) descs[to_index(step.outputs[j])] = results[j];
  }
  for (const ValueId output : routine.outputs) outputs.push_back(descs[to_index(output)]);
  return true;
}

bool RoutineAnalysis::analyze_loop(const RoutineStep& step, const std::vector<TensorDesc>& operands, size_t depth) {
  const auto is_single = [](const TensorDesc& desc) { return desc.shape == Shape{1}; };
  if (depth > 0 && step.scalar && std::ranges::all_of(operands, is_single)) return false;  // a scalar loop is faster as a kernel of its own
  std::vector<TensorDesc> condition, next;
  if (!analyze(step.first, operands, condition, depth) || !analyze(step.second, operands, next, depth)) return false;
  const auto same = [](const TensorDesc& a, const TensorDesc& b) { return a.shape == b.shape; };
  return is_single(condition[0]) && std::equal(next.begin(), next.end(), operands.begin(), same);
}

bool RoutineAnalysis::analyze_if(const RoutineStep& step, const std::vector<TensorDesc>& operands, std::vector<TensorDesc>& outputs,
                                 size_t depth) {
  std::vector<TensorDesc> other;
  ++dispatches;
  return analyze(step.first, operands, outputs, depth) && analyze(step.second, operands, other, depth) && outputs == other;
}

bool RoutineAnalysis::bind_region(Region& region, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs) {
  if (region.reads_values()) return false;
  std::vector<ShapeView> shapes;
  for (const TensorDesc& input : inputs) shapes.emplace_back(input.shape);
  const auto compiled = region.bind(shapes, {})->compiled();
  dispatches += compiled->plan().steps.size();
  arena_bytes = std::max(arena_bytes, compiled->plan().temporary_bytes);
  for (const TensorSlot& output : compiled->outputs()) outputs.push_back(*output.desc);
  return true;
}

}  // namespace pumice
