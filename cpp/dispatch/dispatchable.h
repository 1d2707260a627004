// Dispatchables: compiled operators, compiled graphs and initializers. Binding tables bind their memory, and command lists dispatch them.
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

// An input or output slot; `desc` is empty for an optional tensor described as absent.
struct TensorSlot {
  std::string name;
  std::optional<TensorDesc> desc;
};

// The ranges bound by a complete table, for lowering. An absent binding has a null buffer.
struct BoundRanges {
  std::vector<BufferRange> inputs, outputs;
  BufferRange temporary, persistent;
};

class Dispatchable {
 public:
  virtual ~Dispatchable() = default;
  virtual const std::shared_ptr<Context>& context() const = 0;
  virtual const std::string& name() const = 0;
  virtual const std::vector<TensorSlot>& inputs() const = 0;
  virtual const std::vector<TensorSlot>& outputs() const = 0;
  virtual BindingProperties binding_properties() const = 0;
  virtual bool is_initializer() const { return false; }
  // Changes when the dispatchable is redefined (Initializer::reset), which invalidates existing tables and lists.
  virtual uint64_t generation() const { return 0; }
  // Returns the operators that an initializer initialises, in order; empty for other dispatchables.
  virtual std::vector<const Dispatchable*> get_initialized_operators() const { return {}; }
  // Whether `output` may alias `input` if their descriptions are equal (rules H4, H6, H14, H15).
  virtual bool supports_in_place(size_t /*input*/, size_t /*output*/) const { return false; }
  // Whether the dispatchable was compiled with DESCRIPTORS_VOLATILE: a list reads its table at execution, not at recording (C9).
  virtual bool has_volatile_descriptors() const { return false; }
  // Returns the dispatches that execute this dispatchable on these ranges, in order. Recording inserts the barriers between them.
  virtual std::vector<Dispatch> lower(const BoundRanges& ranges) const = 0;
  // Throws BindingError (P5) if the persistent range is invalid for this dispatchable.
  virtual void check_persistent(const BufferRange&) const {}
  // Called when a list with this dispatchable is executed. begin_execution() checks states (I5, P5) and changes them; cancel_execution()
  // undoes the change if the list is rejected; on_submitted() passes the submission's timeline value.
  virtual void begin_execution(const BoundRanges&) const {}
  virtual void cancel_execution() const {}
  virtual void on_submitted(uint64_t /*id*/) const {}
};

}  // namespace pumice
