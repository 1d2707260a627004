#include "dispatch/binding_table.h"

#include <algorithm>

#include "core/error.h"
#include "dispatch/binding_rules.h"

namespace pumice {
namespace {

// Detects two threads in one table.
class Busy {
 public:
  explicit Busy(std::atomic_flag& flag) : flag_(flag) {
    if (flag_.test_and_set()) throw StateError("a BindingTable is not thread-safe: two threads use the same one");
  }
  ~Busy() { flag_.clear(); }
  Busy(const Busy&) = delete;

 private:
  std::atomic_flag& flag_;
};

void check_descriptors(const Dispatchable& dispatchable, std::optional<uint32_t> descriptors) {
  const uint32_t required = dispatchable.binding_properties().descriptors;
  if (descriptors && *descriptors < required)
    throw BindingError("C10", "descriptors", dispatchable.name(), "at least " + std::to_string(required) + " descriptors",
                       std::to_string(*descriptors));
}

}  // namespace

BindingTable::BindingTable(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors) {
  reset(std::move(dispatchable), descriptors);
}

void BindingTable::reset(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors) {
  const Busy busy(busy_);
  if (!dispatchable) throw BindingError("C10", "dispatchable", "", "a compiled operator or an initializer", "none");
  check_descriptors(*dispatchable, descriptors);
  dispatchable_ = std::move(dispatchable);
  generation_ = dispatchable_->generation();
  state_ = {};
}

void BindingTable::unbind() {
  const Busy busy(busy_);
  state_ = {};
}

template <typename Field, typename Value>
void BindingTable::replace(Field BoundState::* field, const Value& value) {
  BoundState next = state_;
  next.*field = value;
  check_hazards(*dispatchable_, next);
  state_ = std::move(next);
}

void BindingTable::bind_inputs(const std::optional<std::vector<Binding>>& bindings) {
  const Busy busy(busy_);
  if (bindings) check_inputs(*dispatchable_, *bindings);
  replace(&BoundState::inputs, bindings);
}

void BindingTable::bind_outputs(const std::optional<std::vector<Binding>>& bindings) {
  const Busy busy(busy_);
  if (bindings) check_outputs(*dispatchable_, *bindings);
  replace(&BoundState::outputs, bindings);
}

void BindingTable::bind_temporary(const Binding& binding) {
  const Busy busy(busy_);
  check_resource(*dispatchable_, "temporary", binding, dispatchable_->binding_properties().temporary_bytes);
  replace(&BoundState::temporary, binding);
}

void BindingTable::bind_persistent(const Binding& binding) {
  const Busy busy(busy_);
  check_resource(*dispatchable_, "persistent", binding, dispatchable_->binding_properties().persistent_bytes);
  replace(&BoundState::persistent, binding);
}

BoundRanges BindingTable::complete() const {
  const Busy busy(busy_);
  if (dispatchable_->generation() != generation_)
    throw StateError("'" + dispatchable_->name() + "' was reset after this table was made; reset() the table too");
  check_complete(*dispatchable_, state_);
  BoundRanges ranges;
  const auto append = [](std::vector<BufferRange>& into, const std::vector<Binding>& bindings) {
    for (const auto& binding : bindings) {
      if (const auto* array = std::get_if<BufferArray>(&binding))
        into.insert(into.end(), array->begin(), array->end());
      else
        into.push_back(range_of(binding));
    }
  };
  // An initializer's slots without a binding still count: its lowering walks the operators' inputs in order.
  if (dispatchable_->is_initializer()) {
    const auto targets = dispatchable_->targets();
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto* array = state_.inputs ? std::get_if<BufferArray>(&(*state_.inputs)[i]) : nullptr;
      std::vector<BufferRange> entries(targets[i]->inputs().size());
      if (array && !array->empty()) entries = *array;
      ranges.inputs.insert(ranges.inputs.end(), entries.begin(), entries.end());
    }
  } else if (state_.inputs) {
    append(ranges.inputs, *state_.inputs);
  }
  if (state_.outputs) append(ranges.outputs, *state_.outputs);
  ranges.inputs.resize(std::max(ranges.inputs.size(), dispatchable_->is_initializer() ? 0 : dispatchable_->inputs().size()));
  ranges.outputs.resize(dispatchable_->outputs().size());
  ranges.temporary = range_of(state_.temporary);
  ranges.persistent = range_of(state_.persistent);
  return ranges;
}

}  // namespace pumice
