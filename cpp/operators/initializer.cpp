#include <algorithm>

#include "core/error.h"
#include "operators/compiled_operator.h"

namespace pumice {

Initializer::Initializer(std::shared_ptr<Context> context, std::vector<std::shared_ptr<const CompiledOperator>> operators)
    : context_(std::move(context)) {
  reset(std::move(operators));
}

void Initializer::reset(std::vector<std::shared_ptr<const CompiledOperator>> operators) {
  if (context_->completed() < busy_until_) throw StateError("[I6] this Initializer's work is still running; wait for it before reset()");
  std::vector<Slot> inputs, outputs;
  for (const auto& one : operators) {
    if (!one) throw BindingError("C10", "operators", "", "compiled operators", "None");
    if (one->context() != context_)
      throw BindingError("M3", "operators", one->name(), "an operator of the initializer's context", "one of another context");
    inputs.push_back({one->name(), {}});
    outputs.push_back({one->name(), {}});
  }
  ++generation_;
  operators_ = std::move(operators);
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
}

BindingProperties Initializer::binding_properties() const {
  BindingProperties properties;
  for (const auto& one : operators_) {
    const InitializationPlan& plan = *one->plan().initialization;
    for (const auto& step : plan.steps) properties.descriptors += static_cast<uint32_t>(step.operands.size());
    properties.temporary_bytes = std::max(properties.temporary_bytes, plan.temporary_bytes);
  }
  return properties;
}

std::vector<const Dispatchable*> Initializer::targets() const {
  std::vector<const Dispatchable*> all;
  for (const auto& one : operators_) all.push_back(one.get());
  return all;
}

std::vector<Dispatch> Initializer::lower(const BoundRanges& ranges) const {
  std::vector<Dispatch> dispatches;
  auto next = ranges.inputs.begin();
  for (size_t i = 0; i < operators_.size(); ++i) {
    const auto end = next + static_cast<std::ptrdiff_t>(operators_[i]->inputs().size());
    BoundRanges own{{next, end}, {}, ranges.temporary, ranges.outputs.at(i)};
    append_dispatches(*context_, operators_[i]->plan().initialization->steps, own, {}, dispatches);
    next = end;
  }
  return dispatches;
}

void Initializer::check_executable(const BoundRanges&) const {
  for (size_t i = 0; i < operators_.size(); ++i) {
    const auto& state = operators_[i]->state();
    const std::lock_guard lock(state->mutex);
    const bool twice = std::any_of(operators_.begin(), operators_.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const auto& other) { return other->state() == state; });
    if (state->initialised || twice)
      throw BindingError("I5", "operators[" + std::to_string(i) + "]", operators_[i]->name(), "an operator that has not been initialised",
                         "one that has been");
  }
}

void Initializer::executed(const BoundRanges& ranges) const {
  for (size_t i = 0; i < operators_.size(); ++i) {
    const auto& state = operators_[i]->state();
    const std::lock_guard lock(state->mutex);
    state->initialised = true;
    state->buffer_id = ranges.outputs[i].buffer ? ranges.outputs[i].buffer->id() : 0;
    state->offset = ranges.outputs[i].offset;
  }
  busy_until_ = context_->submitted() + 1;
}

}  // namespace pumice
