// What is bound to one dispatchable: inputs, outputs, temporary and persistent memory, checked on the host at the call.
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

  // Null: unbind all (C7).
  void bind_inputs(const std::optional<std::vector<Binding>>& bindings);
  void bind_outputs(const std::optional<std::vector<Binding>>& bindings);
  void bind_temporary(const Binding& binding);
  void bind_persistent(const Binding& binding);
  void unbind();
  void reset(std::shared_ptr<const Dispatchable> dispatchable, std::optional<uint32_t> descriptors = {});

  const std::shared_ptr<const Dispatchable>& dispatchable() const { return dispatchable_; }
  // Every required binding present (C9, P2), and hazards among all of them (H1 .. H13). Throws BindingError.
  BoundRanges complete() const;

 private:
  // Nothing changes where the hazard rules refuse it.
  template <typename Field, typename Value>
  void replace(Field BoundState::* field, const Value& value);

  std::shared_ptr<const Dispatchable> dispatchable_;
  uint64_t generation_ = 0;  // of the dispatchable
  BoundState state_;
  mutable std::atomic_flag busy_;
};

}  // namespace pumice
