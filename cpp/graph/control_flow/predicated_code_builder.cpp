#include <algorithm>
#include <utility>

#include "dispatch/copy.h"
#include "graph/control_flow/predicated_code.h"
#include "graph/region/bound_program.h"

namespace pumice {
namespace {

using DispatchKind = PredicatedDispatch::DispatchKind;

}  // namespace

void PredicatedCodeBuilder::reset_indices() {
  next_ = {0, kFirstCounterWord + 2 * static_cast<uint32_t>(code_.inner_loops().size()), 0};
}

uint32_t PredicatedCodeBuilder::allocate_words(uint32_t count) {
  return std::exchange(next_.word, next_.word + count);
}

const RoutineValue& PredicatedCodeBuilder::allocate_scratch(const TensorDesc& desc) {
  return code_.get_scratch(next_.scratch++, desc, pool_);
}

PredicatedDispatch& PredicatedCodeBuilder::add_branch(DispatchKind kind, uint32_t target_word, const std::string& label) {
  PredicatedDispatch& item = items.emplace_back();
  item.is_branch = true;
  item.kind = kind, item.target_word = target_word;
  item.dispatch.label = label;
  return item;
}

void PredicatedCodeBuilder::move_predicate(uint32_t word, uint32_t to, const std::string& label, uint32_t counter) {
  PredicatedDispatch& item = add_branch(DispatchKind::move, word, label);
  item.to = to, item.counter = counter;
}

void PredicatedCodeBuilder::add_copy(const BufferRange& from, const BufferRange& to, uint32_t word) {
  for (Dispatch& copy_step : make_copy_dispatches(from, to)) {
    PredicatedDispatch& item = items.emplace_back();
    item.dispatch = std::move(copy_step);
    item.word = word;
  }
}

std::vector<RoutineValue> PredicatedCodeBuilder::add_routine(size_t routine_index, std::span<const RoutineValue> inputs,
                                                             std::span<const RoutineValue> destinations, uint32_t& word) {
  const Routine& routine = code_.program().routines[routine_index];
  std::vector<RoutineValue> values(routine.read_by_host.size());
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < inputs.size(); ++i) values[to_index(routine.inputs[i])] = inputs[i];
  for (const RoutineConstant& constant : routine.constants) values[to_index(constant.value)] = {constant.host.desc, constant.range, {}, {}};
  for (const RoutineStep& step : routine.steps) {
    std::vector<RoutineValue> operands, targets;
    for (const ValueId input : step.inputs) operands.push_back(values[to_index(input)]);
    const std::vector<TensorDesc> results = infer_result_descs(step, operands);
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const auto output = std::ranges::find(routine.outputs, step.outputs[j]);
      const auto position = static_cast<size_t>(output - routine.outputs.begin());
      targets.push_back(position < destinations.size() ? destinations[position] : allocate_scratch(results[j]));
    }
    if (step.kind == RoutineStep::StepKind::region)
      add_region(step, operands, targets, word);
    else if (step.kind == RoutineStep::StepKind::while_)
      add_loop(step, operands, targets, word);
    else
      add_branches(step, operands, targets, word);
    for (size_t j = 0; j < targets.size(); ++j) values[to_index(step.outputs[j])] = std::move(targets[j]);
  }
  std::vector<RoutineValue> outputs;
  for (const ValueId output : routine.outputs) outputs.push_back(values[to_index(output)]);
  return outputs;
}

// Returns the shapes and dtypes of the results of a step.
std::vector<TensorDesc> PredicatedCodeBuilder::infer_result_descs(const RoutineStep& step, std::span<const RoutineValue> operands) const {
  std::vector<TensorDesc> inputs, outputs;
  for (const RoutineValue& value : operands) inputs.push_back(value.desc);
  if (step.kind == RoutineStep::StepKind::while_) return {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(step.carried)};
  if (step.kind == RoutineStep::StepKind::if_) {
    inputs.erase(inputs.begin());
    RoutineAnalysis(code_.program()).analyze_if(step, inputs, outputs);
    return outputs;
  }
  std::vector<ShapeView> shapes;
  for (const TensorDesc& input : inputs) shapes.emplace_back(input.shape);
  const auto compiled = step.region->bind(shapes, {})->compiled();
  for (const TensorSlot& output : compiled->outputs()) outputs.push_back(*output.desc);
  return outputs;
}

void PredicatedCodeBuilder::add_region(const RoutineStep& step, std::span<const RoutineValue> operands,
                                       std::span<const RoutineValue> targets, uint32_t word) {
  std::vector<ShapeView> shapes;
  std::vector<BufferRange> read, written;
  for (const RoutineValue& input : operands) shapes.emplace_back(input.desc.shape), read.push_back(input.range);
  for (const RoutineValue& output : targets) written.push_back(output.range);
  const auto bound = step.region->bind(shapes, {});
  for (Dispatch& dispatch : make_dispatches(bound->compiled(), bound->persistent(), read, written, code_.arena())) {
    PredicatedDispatch& item = items.emplace_back();
    item.dispatch = std::move(dispatch);
    item.word = word;
  }
}

void PredicatedCodeBuilder::add_branches(const RoutineStep& step, std::span<const RoutineValue> operands,
                                         std::span<const RoutineValue> targets, uint32_t& word) {
  const uint32_t branch_words = allocate_words(2);
  const bool has_inner_loop = code_.has_loop(step.first) || code_.has_loop(step.second);
  PredicatedDispatch& item =
      add_branch(has_inner_loop ? DispatchKind::split : DispatchKind::choice, has_inner_loop ? word : branch_words, step.node);
  item.enclosing = word, item.to = branch_words, item.condition = operands[0].range;
  uint32_t then = branch_words, otherwise = branch_words + 1;
  add_routine(step.first, operands.subspan(1), targets, then);
  add_routine(step.second, operands.subspan(1), targets, otherwise);
  if (!has_inner_loop) return;
  word = allocate_words(1);
  move_predicate(then, word, step.node);
  move_predicate(otherwise, word, step.node);
}

void PredicatedCodeBuilder::add_loop_iteration(const RoutineStep& step, std::span<const RoutineValue> state,
                                               std::span<const RoutineValue> other, std::span<const RoutineValue> invariants,
                                               const LoopPredicateWords& predicate_words) {
  const auto& [start, body, counter] = predicate_words;
  std::vector<RoutineValue> values(state.begin(), state.end());
  values.insert(values.end(), invariants.begin(), invariants.end());
  uint32_t word = start;
  const auto condition = add_routine(step.first, values, {}, word);
  PredicatedDispatch& item = add_branch(DispatchKind::split, word, step.node);
  item.to = body, item.counter = counter, item.condition = condition[0].range;
  word = body;
  add_routine(step.second, values, other, word);
  for (size_t i = 0; i < state.size(); ++i) add_copy(other[i].range, state[i].range, word);
  move_predicate(word, start, step.node);
}

// Adds an inner loop as kInnerCopies copies of an iteration. If it needs more iterations, it continues in the next round.
void PredicatedCodeBuilder::add_loop(const RoutineStep& step, std::span<const RoutineValue> operands, std::span<const RoutineValue> targets,
                                     uint32_t& word) {
  const size_t num_states = step.carried + step.state;
  const uint32_t start = allocate_words(1), body = allocate_words(2), counters = kFirstCounterWord + 2 * next_.inner++;
  std::vector<RoutineValue> state, other;
  for (size_t i = 0; i < num_states; ++i) {
    state.push_back(allocate_scratch(operands[i].desc));
    other.push_back(allocate_scratch(operands[i].desc));
    add_copy(operands[i].range, state[i].range, word);
  }
  move_predicate(word, start, step.node, counters);
  const NextIndices first = next_;
  for (size_t i = 0; i < kInnerCopies; ++i) {
    // The copies run one after the other, so they share scratch memory and predicate words.
    next_ = first;
    add_loop_iteration(step, state, other, operands.subspan(num_states), {start, body, counters + 1});
  }
  word = body + 1;
  for (size_t i = 0; i < step.carried; ++i) add_copy(state[i].range, targets[i].range, word);
}

}  // namespace pumice
