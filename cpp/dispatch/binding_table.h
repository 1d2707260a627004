// The memory bound to a dispatchable: inputs, outputs, temporary and persistent memory. Validated on the host at each bind call.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "dispatch/binding_rules.h"

namespace pumice {

// Checks all rules of binding tables at each call and keeps bound memory alive. A rejected call (BindingError with rule, slot, tensor,
// expected, given) leaves the table unchanged. Not thread-safe: concurrent use throws StateError.
class BindingTable {
 public:
  explicit BindingTable(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors = {});

  // Bind inputs or outputs. An empty list unbinds all (C7).
  void bind_inputs(Bindings bindings);
  void bind_outputs(Bindings bindings);
  // Replaces inputs and outputs together, without checking either against the previous bindings.
  void bind(Bindings inputs, Bindings outputs);
  void bind_temporary(Binding binding);   // std::monostate unbinds
  void bind_persistent(Binding binding);  // std::monostate unbinds
  void unbind();
  void reset(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors = {});

  const std::shared_ptr<const Dispatchable>& dispatchable() const { return dispatchable_; }
  BindingsView bindings() const { return make_view(); }  // valid until the next call to the table
  // Returns a number that changes with every call that modifies the bindings.
  uint64_t version() const { return version_; }
  // Returns the bound ranges. Throws BindingError (C9, P2) if a required binding is missing.
  BoundRanges get_ranges_of_complete_table() const;

 private:
  BindingsView make_view() const;
  void check_generation() const;

  std::shared_ptr<const Dispatchable> dispatchable_;
  uint64_t generation_ = 0;  // generation of the dispatchable at construction
  std::optional<BindingRules> rules_;
  std::optional<Bindings> inputs_, outputs_;
  Binding temporary_, persistent_;
  std::atomic<uint64_t> version_{0};
  mutable std::atomic_flag busy_;
};

}  // namespace pumice
