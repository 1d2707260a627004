// Dispatchables, which a binding table binds and a command list dispatches: compiled operators, compiled graphs and initializers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_desc.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

struct BindingProperties {
  uint32_t descriptors = 0;
  uint64_t temporary_bytes = 0;
  uint64_t persistent_bytes = 0;
  bool operator==(const BindingProperties&) const = default;
};

// One input or output slot; `desc` is empty for an optional tensor described as absent.
struct Slot {
  std::string name;
  std::optional<TensorDesc> desc;
};

// The ranges of a complete table, as lowering sees them. Absent ones have a null buffer.
struct BoundRanges {
  std::vector<BufferRange> inputs, outputs;
  BufferRange temporary, persistent;
};

class Dispatchable {
 public:
  virtual ~Dispatchable() = default;
  virtual const std::shared_ptr<Context>& context() const = 0;
  virtual const std::string& name() const = 0;
  virtual const std::vector<Slot>& inputs() const = 0;
  virtual const std::vector<Slot>& outputs() const = 0;
  virtual BindingProperties binding_properties() const = 0;
  virtual bool is_initializer() const { return false; }
  // Changes where the dispatchable is made another one (Initializer::reset): tables and lists of before are void.
  virtual uint64_t generation() const { return 0; }
  // The operators that an initializer initialises, in order; empty for everything else.
  virtual std::vector<const Dispatchable*> targets() const { return {}; }
  // Whether `output` may be the memory of `input`, where their descriptions are one (H4, H6, H14, H15).
  virtual bool supports_in_place(size_t /*input*/, size_t /*output*/) const { return false; }
  // True if compiled with DESCRIPTORS_VOLATILE: a list reads its table when it is executed, not when it is recorded (C9).
  virtual bool descriptors_volatile() const { return false; }
  // The dispatches that execute this on the given ranges, in an order that needs no more than range hazards to be right.
  virtual std::vector<Dispatch> lower(const BoundRanges& ranges) const = 0;
  // Throws BindingError (P5) unless the persistent range may be used for this dispatchable.
  virtual void check_persistent(const BufferRange&) const {}
  // Called when a list holding this dispatchable is executed: it checks states (I5, P5), then changes them, which revoke_execution() takes
  // back where the list is refused after all, and submitted() completes with the id on the timeline.
  virtual void begin_execution(const BoundRanges&) const {}
  virtual void revoke_execution() const {}
  virtual void submitted(uint64_t /*id*/) const {}
};

}  // namespace pumice
