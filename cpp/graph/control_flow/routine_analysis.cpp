#include "graph/control_flow/routine_analysis.h"

#include <algorithm>

namespace pumice {
namespace {

constexpr size_t kMostDepth = 16;  // maximum nesting of IF and WHILE nodes

bool fits(const ProgramValue& declared, const TensorDesc& given) {
  if (!declared.shape) return true;
  return std::ranges::equal(*declared.shape, given.shape, [](int64_t a, int64_t b) { return a == kUnknownSize || a == b; });
}

}  // namespace

bool FlowSurvey::run(size_t number, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs, size_t depth) {
  const Routine& routine = program_.routines[number];
  std::vector<TensorDesc> descs(routine.read_by_host.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!fits(routine.input_values[i], inputs[i])) return false;
    descs[index(routine.inputs[i])] = inputs[i];
  }
  for (const RoutineConstant& constant : routine.constants) descs[index(constant.value)] = constant.host.desc;
  for (const RoutineStep& step : routine.steps) {
    std::vector<TensorDesc> given, made;
    for (const ValueId input : step.inputs) given.push_back(input == kAbsent ? TensorDesc() : descs[index(input)]);
    if (depth > kMostDepth || !is_small()) return false;
    if (step.kind == RoutineStep::Kind::region) {
      if (!bind(*step.region, given, made)) return false;
    } else if (step.kind == RoutineStep::Kind::while_) {
      const size_t before = dispatches;
      inner.push_back(&step);
      if (!loop(step, given, depth + 1)) return false;
      dispatches = before + (dispatches - before + 2 * (step.carried + step.state) + 2) * kInnerCopies;
      made.assign(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(step.carried));
    } else {
      if (step.inputs[0] == kAbsent) return false;
      given.erase(given.begin());
      if (!choice(step, given, made, depth + 1)) return false;
    }
    for (size_t j = 0; j < step.outputs.size(); ++j) descs[index(step.outputs[j])] = made[j];
  }
  for (const ValueId output : routine.outputs) outputs.push_back(descs[index(output)]);
  return true;
}

bool FlowSurvey::loop(const RoutineStep& step, const std::vector<TensorDesc>& given, size_t depth) {
  const auto is_single = [](const TensorDesc& desc) { return desc.shape == Shape{1}; };
  if (depth > 0 && step.scalar && std::ranges::all_of(given, is_single)) return false;  // a scalar loop is faster as a separate kernel
  std::vector<TensorDesc> condition, next;
  if (!run(step.first, given, condition, depth) || !run(step.second, given, next, depth)) return false;
  const auto same = [](const TensorDesc& a, const TensorDesc& b) { return a.shape == b.shape; };
  return is_single(condition[0]) && std::equal(next.begin(), next.end(), given.begin(), same);
}

bool FlowSurvey::choice(const RoutineStep& step, const std::vector<TensorDesc>& given, std::vector<TensorDesc>& outputs, size_t depth) {
  std::vector<TensorDesc> other;
  ++dispatches;
  return run(step.first, given, outputs, depth) && run(step.second, given, other, depth) && outputs == other;
}

bool FlowSurvey::bind(Region& region, const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>& outputs) {
  if (region.reads_values()) return false;
  std::vector<ShapeView> shapes;
  for (const TensorDesc& input : inputs) shapes.emplace_back(input.shape);
  const auto compiled = region.bind(shapes, {})->compiled();
  dispatches += compiled->plan().steps.size();
  arena_bytes = std::max(arena_bytes, compiled->plan().temporary_bytes);
  for (const Slot& output : compiled->outputs()) outputs.push_back(*output.desc);
  return true;
}

}  // namespace pumice
