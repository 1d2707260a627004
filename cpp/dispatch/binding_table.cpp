#include "dispatch/binding_table.h"

#include "core/error.h"

namespace pumice {
namespace {

// Detects concurrent use of a table.
class BusyGuard {
 public:
  explicit BusyGuard(std::atomic_flag& flag) : flag_(flag) {
    if (flag_.test_and_set()) throw StateError("a BindingTable is not thread-safe: two threads use the same one", "L3");
  }
  ~BusyGuard() { flag_.clear(); }
  BusyGuard(const BusyGuard&) = delete;

 private:
  std::atomic_flag& flag_;
};

void check_descriptors(const Dispatchable& dispatchable, std::optional<uint32_t> descriptors) {
  const uint32_t required = dispatchable.binding_properties().descriptors;
  if (descriptors && *descriptors < required)
    throw BindingError("C10", "descriptors", dispatchable.name(), "at least " + std::to_string(required) + " descriptors",
                       std::to_string(*descriptors));
}

const Bindings* to_pointer(const std::optional<Bindings>& bindings) {
  return bindings ? &*bindings : nullptr;
}

// Maps an empty list to nullopt.
std::optional<Bindings> nullopt_if_empty(Bindings bindings) {
  return bindings.empty() ? std::nullopt : std::optional(std::move(bindings));
}

}  // namespace

BindingTable::BindingTable(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors) {
  reset(std::move(dispatchable), descriptors);
}

void BindingTable::reset(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors) {
  const BusyGuard busy(busy_);
  if (!dispatchable) throw BindingError("C10", "dispatchable", "", "a compiled operator or an initializer", "none");
  check_descriptors(*dispatchable, descriptors);
  rules_.emplace(*dispatchable);
  dispatchable_ = std::move(dispatchable);
  generation_ = dispatchable_->generation();
  inputs_.reset(), outputs_.reset();
  temporary_ = persistent_ = Binding();
  ++version_;
}

void BindingTable::unbind() {
  const BusyGuard busy(busy_);
  inputs_.reset(), outputs_.reset();
  temporary_ = persistent_ = Binding();
  ++version_;
}

BindingsView BindingTable::make_view() const {
  return {to_pointer(inputs_), to_pointer(outputs_), &temporary_, &persistent_};
}

void BindingTable::check_generation() const {
  if (dispatchable_->generation() != generation_)
    throw BindingError("I7", "dispatchable", dispatchable_->name(), "a table made, or reset, after the initializer's reset",
                       "an older one");
}

void BindingTable::bind_inputs(Bindings bindings) {
  const BusyGuard busy(busy_);
  check_generation();
  BindingsView next = make_view();
  next.inputs = bindings.empty() ? nullptr : &bindings;
  if (next.inputs) rules_->check_inputs(bindings);
  rules_->check_hazards(next);
  inputs_ = nullopt_if_empty(std::move(bindings));
  ++version_;
}

void BindingTable::bind_outputs(Bindings bindings) {
  const BusyGuard busy(busy_);
  check_generation();
  BindingsView next = make_view();
  next.outputs = bindings.empty() ? nullptr : &bindings;
  if (next.outputs) rules_->check_outputs(bindings);
  rules_->check_hazards(next);
  outputs_ = nullopt_if_empty(std::move(bindings));
  ++version_;
}

void BindingTable::bind(Bindings inputs, Bindings outputs) {
  const BusyGuard busy(busy_);
  check_generation();
  BindingsView next = make_view();
  next.inputs = inputs.empty() ? nullptr : &inputs;
  next.outputs = outputs.empty() ? nullptr : &outputs;
  if (next.inputs) rules_->check_inputs(inputs);
  if (next.outputs) rules_->check_outputs(outputs);
  rules_->check_hazards(next);
  inputs_ = nullopt_if_empty(std::move(inputs)), outputs_ = nullopt_if_empty(std::move(outputs));
  ++version_;
}

void BindingTable::bind_temporary(Binding binding) {
  const BusyGuard busy(busy_);
  check_generation();
  rules_->check_temporary(binding);
  BindingsView next = make_view();
  next.temporary = &binding;
  rules_->check_hazards(next);
  temporary_ = std::move(binding);
  ++version_;
}

void BindingTable::bind_persistent(Binding binding) {
  const BusyGuard busy(busy_);
  check_generation();
  rules_->check_persistent(binding);
  BindingsView next = make_view();
  next.persistent = &binding;
  rules_->check_hazards(next);
  if (const BufferRange& range = get_range(binding); range.buffer) dispatchable_->check_persistent(range);
  persistent_ = std::move(binding);
  ++version_;
}

BoundRanges BindingTable::get_ranges_of_complete_table() const {
  const BusyGuard busy(busy_);
  check_generation();
  rules_->check_all_slots_bound(make_view());
  return rules_->get_ranges(make_view());
}

}  // namespace pumice
