#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

Initializer::Initializer(std::shared_ptr<Context> context, std::vector<std::shared_ptr<const CompiledOperator>> operators)
    : context_(std::move(context)) {
  reset(std::move(operators));
}

void Initializer::reset(std::vector<std::shared_ptr<const CompiledOperator>> operators) {
  if (context_->get_last_completed() < busy_until_)
    throw BindingError("I6", "initializer", name_, "a reset after its work is done",
                       "one while execution " + std::to_string(busy_until_) + " runs");
  std::vector<TensorSlot> inputs, outputs;
  std::map<const InitializationState*, std::string> names_by_state;  // plans of one program share a state
  for (const auto& op : operators) {
    const std::string path = "operators[" + std::to_string(inputs.size()) + "]";
    if (!op) throw BindingError("C10", path, "", "a compiled operator", "None");
    if (op->context() != context_)
      throw BindingError("M3", path, op->name(), "an operator of the initializer's context", "one of another context");
    const auto [first, is_new] = names_by_state.emplace(op->state().get(), path);
    if (!is_new) throw BindingError("I5", path, op->name(), "an operator that is not in the list yet", "that of " + first->second);
    inputs.push_back({op->name(), {}});
    outputs.push_back({op->name(), {}});
  }
  ++generation_;
  operators_ = std::move(operators);
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
}

BindingProperties Initializer::binding_properties() const {
  BindingProperties properties;
  for (const auto& op : operators_) {
    const InitializationPlan& plan = *op->plan().initialization;
    for (const auto& step : plan.steps) properties.descriptors += static_cast<uint32_t>(step.operands.size());
    properties.temporary_bytes = std::max(properties.temporary_bytes, plan.temporary_bytes);
  }
  return properties;
}

std::vector<const Dispatchable*> Initializer::get_initialized_operators() const {
  std::vector<const Dispatchable*> all;
  for (const auto& op : operators_) all.push_back(op.get());
  return all;
}

std::vector<Dispatch> Initializer::lower(const BoundRanges& ranges) const {
  std::vector<Dispatch> dispatches;
  auto next = ranges.inputs.begin();
  for (size_t i = 0; i < operators_.size(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(operators_[i]->inputs().size());
    BoundRanges operator_ranges{{next, end}, {}, ranges.temporary, ranges.outputs.at(i)};
    append_dispatches(*context_, operators_[i]->plan().initialization->steps, operator_ranges, operators_[i]->constants(), dispatches);
    next = end;
  }
  return dispatches;
}

void Initializer::begin_execution(const BoundRanges& ranges) const {
  for (size_t i = 0; i < operators_.size(); ++i) {
    const auto& state = operators_[i]->state();
    bool before;
    {
      const std::lock_guard lock(state->mutex);
      before = std::exchange(state->initialised, true);
      if (!before) {
        state->buffer_id = ranges.outputs[i].buffer ? ranges.outputs[i].buffer->id() : 0;
        state->offset = ranges.outputs[i].offset;
      }
    }
    if (!before) continue;
    revoke_initialization(i);
    throw BindingError("I5", "operators[" + std::to_string(i) + "]", operators_[i]->name(), "an operator that has not been initialised",
                       "one that has been");
  }
}

void Initializer::cancel_execution() const {
  revoke_initialization(operators_.size());
}

// Marks the first `count` operators as uninitialised.
void Initializer::revoke_initialization(size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    const auto& state = operators_[i]->state();
    const std::lock_guard lock(state->mutex);
    state->initialised = false;
  }
}

void Initializer::on_submitted(uint64_t id) const {
  busy_until_ = id;
  for (const auto& op : operators_) {
    const std::lock_guard lock(op->state()->mutex);
    op->state()->constants.reset();  // the command list that reads the constants keeps them alive
  }
}

}  // namespace pumice
