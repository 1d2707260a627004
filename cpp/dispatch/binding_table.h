// The memory bound to one dispatchable: inputs, outputs, temporary and persistent memory, checked on the host at the call.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "dispatch/binding_rules.h"

namespace pumice {

// Checks every rule of the binding tables at the call and keeps what it binds alive. A refused call (BindingError with rule, slot,
// tensor, expected, given) leaves the table as it was. Not thread-safe: concurrent use throws StateError.
class BindingTable {
 public:
  explicit BindingTable(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors = {});

  // Bind the inputs or the outputs. A list of no bindings unbinds all (C7).
  void bind_inputs(Bindings bindings);
  void bind_outputs(Bindings bindings);
  // Replaces inputs and outputs at once: neither is checked against what was bound before.
  void bind(Bindings inputs, Bindings outputs);
  void bind_temporary(Binding binding);   // nothing: unbinds
  void bind_persistent(Binding binding);  // nothing: unbinds
  void unbind();
  void reset(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors = {});

  const std::shared_ptr<const Dispatchable>& dispatchable() const { return dispatchable_; }
  BoundView bound() const { return view(); }  // until the table's next call
  // A number that changes with every call that changes what is bound.
  uint64_t version() const { return version_; }
  // The bound ranges. Throws BindingError unless every required binding is present (C9, P2).
  BoundRanges complete() const;

 private:
  BoundView view() const;
  void check_generation() const;

  std::shared_ptr<const Dispatchable> dispatchable_;
  uint64_t generation_ = 0;  // the dispatchable's when it was read
  std::optional<BindingRules> rules_;
  std::optional<Bindings> inputs_, outputs_;
  Binding temporary_, persistent_;
  std::atomic<uint64_t> version_{0};
  mutable std::atomic_flag busy_;
};

}  // namespace pumice
