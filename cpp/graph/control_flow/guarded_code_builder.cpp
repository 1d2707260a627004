#include <algorithm>
#include <utility>

#include "dispatch/copy.h"
#include "graph/control_flow/guarded_code.h"
#include "graph/region/bound_program.h"

namespace pumice {
namespace {

using Kind = GuardedItem::Kind;

}  // namespace

void CodeBuilder::restart() {
  next_ = {0, kCounters + 2 * static_cast<uint32_t>(code_.inner().size()), 0};
}

uint32_t CodeBuilder::words(uint32_t count) {
  return std::exchange(next_.word, next_.word + count);
}

const FlowValue& CodeBuilder::scratch(const TensorDesc& desc) {
  return code_.scratch(next_.scratch++, desc, pool_);
}

GuardedItem& CodeBuilder::add_branch(Kind kind, uint32_t own, const std::string& label) {
  GuardedItem& item = items.emplace_back();
  item.is_branch = true;
  item.kind = kind, item.own = own;
  item.dispatch.label = label;
  return item;
}

void CodeBuilder::hand_on(uint32_t word, uint32_t to, const std::string& label, uint32_t counter) {
  GuardedItem& item = add_branch(Kind::move, word, label);
  item.to = to, item.counter = counter;
}

void CodeBuilder::copy(const BufferRange& from, const BufferRange& to, uint32_t word) {
  for (Dispatch& part : copy_dispatches(from, to)) {
    GuardedItem& item = items.emplace_back();
    item.dispatch = std::move(part);
    item.word = word;
  }
}

std::vector<FlowValue> CodeBuilder::run(size_t number, std::span<const FlowValue> inputs, std::span<const FlowValue> wanted,
                                        uint32_t& word) {
  const Routine& routine = code_.program().routines[number];
  std::vector<FlowValue> values(routine.read_by_host.size());
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < inputs.size(); ++i) values[index(routine.inputs[i])] = inputs[i];
  for (const RoutineConstant& constant : routine.constants) values[index(constant.value)] = {constant.host.desc, constant.range, {}, {}};
  for (const RoutineStep& step : routine.steps) {
    std::vector<FlowValue> given, made;
    for (const ValueId input : step.inputs) given.push_back(values[index(input)]);
    const std::vector<TensorDesc> results = descriptions(step, given);
    for (size_t j = 0; j < step.outputs.size(); ++j) {
      const auto output = std::ranges::find(routine.outputs, step.outputs[j]);
      const auto position = static_cast<size_t>(output - routine.outputs.begin());
      made.push_back(position < wanted.size() ? wanted[position] : scratch(results[j]));
    }
    if (step.kind == RoutineStep::Kind::region)
      run_region(step, given, made, word);
    else if (step.kind == RoutineStep::Kind::while_)
      run_loop(step, given, made, word);
    else
      choose(step, given, made, word);
    for (size_t j = 0; j < made.size(); ++j) values[index(step.outputs[j])] = std::move(made[j]);
  }
  std::vector<FlowValue> outputs;
  for (const ValueId output : routine.outputs) outputs.push_back(values[index(output)]);
  return outputs;
}

// Returns the descriptions of a step's results.
std::vector<TensorDesc> CodeBuilder::descriptions(const RoutineStep& step, std::span<const FlowValue> given) const {
  std::vector<TensorDesc> inputs, outputs;
  for (const FlowValue& value : given) inputs.push_back(value.desc);
  if (step.kind == RoutineStep::Kind::while_) return {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(step.carried)};
  if (step.kind == RoutineStep::Kind::if_) {
    inputs.erase(inputs.begin());
    FlowSurvey(code_.program()).choice(step, inputs, outputs);
    return outputs;
  }
  std::vector<ShapeView> shapes;
  for (const TensorDesc& input : inputs) shapes.emplace_back(input.shape);
  const auto compiled = step.region->bind(shapes, {})->compiled();
  for (const Slot& output : compiled->outputs()) outputs.push_back(*output.desc);
  return outputs;
}

void CodeBuilder::run_region(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t word) {
  std::vector<ShapeView> shapes;
  std::vector<BufferRange> read, written;
  for (const FlowValue& input : given) shapes.emplace_back(input.desc.shape), read.push_back(input.range);
  for (const FlowValue& output : made) written.push_back(output.range);
  const auto bound = step.region->bind(shapes, {});
  for (Dispatch& dispatch : dispatches_on(bound->compiled(), bound->persistent(), read, written, code_.arena())) {
    GuardedItem& item = items.emplace_back();
    item.dispatch = std::move(dispatch);
    item.word = word;
  }
}

void CodeBuilder::choose(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t& word) {
  const uint32_t own = words(2);
  const bool in_parts = code_.has_loop(step.first) || code_.has_loop(step.second);
  GuardedItem& item = add_branch(in_parts ? Kind::split : Kind::choice, in_parts ? word : own, step.node);
  item.enclosing = word, item.to = own, item.condition = given[0].range;
  uint32_t then = own, otherwise = own + 1;
  run(step.first, given.subspan(1), made, then);
  run(step.second, given.subspan(1), made, otherwise);
  if (!in_parts) return;
  word = words(1);
  hand_on(then, word, step.node);
  hand_on(otherwise, word, step.node);
}

void CodeBuilder::part(const RoutineStep& step, std::span<const FlowValue> state, std::span<const FlowValue> other,
                       std::span<const FlowValue> invariants, const LoopWords& own) {
  const auto& [start, body, counter] = own;
  std::vector<FlowValue> values(state.begin(), state.end());
  values.insert(values.end(), invariants.begin(), invariants.end());
  uint32_t word = start;
  const auto condition = run(step.first, values, {}, word);
  GuardedItem& item = add_branch(Kind::split, word, step.node);
  item.to = body, item.counter = counter, item.condition = condition[0].range;
  word = body;
  run(step.second, values, other, word);
  for (size_t i = 0; i < state.size(); ++i) copy(other[i].range, state[i].range, word);
  hand_on(word, start, step.node);
}

// Records an inner loop as kInnerCopies copies of an iteration. If it needs more, it continues in the next round.
void CodeBuilder::run_loop(const RoutineStep& step, std::span<const FlowValue> given, std::span<const FlowValue> made, uint32_t& word) {
  const size_t kept = step.carried + step.state;
  const uint32_t start = words(1), body = words(2), counters = kCounters + 2 * next_.inner++;
  std::vector<FlowValue> state, other;
  for (size_t i = 0; i < kept; ++i) {
    state.push_back(scratch(given[i].desc));
    other.push_back(scratch(given[i].desc));
    copy(given[i].range, state[i].range, word);
  }
  hand_on(word, start, step.node, counters);
  const Place first = next_;
  for (size_t i = 0; i < kInnerCopies; ++i) {
    // All copies share scratch memory and words: they run one after the other.
    next_ = first;
    part(step, state, other, given.subspan(kept), {start, body, counters + 1});
  }
  word = body + 1;
  for (size_t i = 0; i < step.carried; ++i) copy(state[i].range, made[i].range, word);
}

}  // namespace pumice
