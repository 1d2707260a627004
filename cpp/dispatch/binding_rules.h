// Checks the binding rules for one dispatchable; binding_rule_list.h has the ids. Violations throw BindingError. Each call checks in this
// order: kind, count, null, memory, range, alignment, size, description, hazards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dispatch/dispatchable.h"

namespace pumice {

// A buffer range, and the Tensor's description if it was bound as a Tensor.
struct DescribedRange : BufferRange {
  DescribedRange() = default;
  DescribedRange(BufferRange range, std::shared_ptr<const TensorDesc> description = {})
      : BufferRange(std::move(range)), desc(std::move(description)) {}

  std::shared_ptr<const TensorDesc> desc;
};

// A binding: nothing, a buffer range, or an array of ranges (an initializer's inputs of one operator).
using BufferArray = std::vector<DescribedRange>;
using Binding = std::variant<std::monostate, DescribedRange, BufferArray>;
using Bindings = std::vector<Binding>;

// Returns the range of a binding; a null buffer if nothing is bound.
const BufferRange& get_range(const Binding& binding);

// A slot of a table: "inputs[2]", "inputs[0][1]" of an initializer, "temporary".
struct SlotName {
  enum class SlotKind : uint8_t { inputs, outputs, temporary, persistent };
  SlotKind kind;
  int32_t index = -1, entry = -1;
  std::string to_string() const;
};

// The bindings of a table. Lists are null if nothing is bound.
struct BindingsView {
  const Bindings* inputs = nullptr;
  const Bindings* outputs = nullptr;
  const Binding* temporary = nullptr;
  const Binding* persistent = nullptr;
};

// Requirements for the binding of a slot.
struct BindingRequirement {
  enum class Presence : uint8_t { forbidden, optional, required };
  std::string_view tensor;           // name of the tensor
  const TensorDesc* desc = nullptr;  // null for a temporary or persistent resource, or for an absent tensor
  uint64_t bytes = 0;
  uint64_t alignment = 1;
  Presence presence = Presence::optional;
  std::string_view presence_rule, reason;  // rule and reason in the error about a missing or unexpected binding
  std::string_view alignment_rule, size_rule;
  bool upload_allowed = false;
};

// Checks the bindings of one dispatchable and keeps pointers to its slots. Allocates nothing on success. Not thread-safe.
class BindingRules {
 public:
  explicit BindingRules(const Dispatchable& dispatchable);
  void check_inputs(const Bindings& bindings);
  void check_outputs(const Bindings& bindings);
  void check_temporary(const Binding& binding);
  void check_persistent(const Binding& binding);
  // Checks that bindings do not overlap in a way that causes hazards (H1 .. H13).
  void check_hazards(const BindingsView& bound);
  // Checks that all required bindings are present (C9, P2).
  void check_all_slots_bound(const BindingsView& bound) const;
  // Returns the ranges for lowering: an initializer's inputs are flattened in order; ranges are null if nothing is bound or a tensor has no
  // bytes.
  BoundRanges get_ranges(const BindingsView& bound) const;

 private:
  // The inputs of one operator of an initializer.
  struct InitializerTarget {
    std::string_view name;
    size_t first, count;
    bool owns;
  };
  struct BoundSlot {
    SlotName slot;
    const BindingRequirement* requirement;
    const DescribedRange* range;  // null: nothing bound
  };
  // A byte range of memory and the slot that it is bound to.
  struct MemoryExtent {
    SlotName slot;
    const BindingRequirement* requirement;
    uint64_t memory, begin, end;
    uint64_t tensor_end;  // begin + TotalTensorSize, for rule H7
    uint64_t buffer;
  };
  using Extents = std::vector<MemoryExtent>;

  void add_execution(const Dispatchable& dispatchable);
  void add_initialization(const Dispatchable& dispatchable);
  void check_binding_list(SlotName::SlotKind kind, const std::vector<BindingRequirement>& slots, const Bindings& bindings,
                          std::string_view count_rule);
  void check_initializer_inputs(const Bindings& bindings);
  void check_resource_binding(SlotName::SlotKind kind, const BindingRequirement& slot, const Binding& binding);
  void check_bound_slots() const;
  void check_memory(const BoundSlot& bound_slot) const;
  void collect_memory_extents(const BindingsView& bound);
  void collect_list_extents(SlotName::SlotKind kind, const Bindings* bindings, const std::vector<BindingRequirement>& slots,
                            Extents& extents) const;
  void check_in_place(const MemoryExtent& output, const MemoryExtent& input) const;

  const Dispatchable& dispatchable_;
  bool initializer_;
  std::vector<InitializerTarget> targets_;            // operators that the initializer initialises
  std::vector<BindingRequirement> inputs_, outputs_;  // an initializer has the inputs of all its targets
  BindingRequirement temporary_, persistent_;
  std::vector<BoundSlot> bound_slots_;  // bindings of the current call
  Extents input_extents_, output_extents_, temporary_extents_, persistent_extents_;
};

}  // namespace pumice
