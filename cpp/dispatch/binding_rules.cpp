#include "dispatch/binding_rules.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

constexpr uint64_t kTensorAlignment = 16;
constexpr uint64_t kResourceAlignment = 256;  // of temporary and persistent resources

std::string bytes_text(uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

std::string slot_name(std::string_view kind, size_t i) {
  return std::string(kind) + "[" + std::to_string(i) + "]";
}

bool is_none(const Binding& binding) {
  if (std::holds_alternative<std::monostate>(binding)) return true;
  const auto* range = std::get_if<BufferRange>(&binding);
  return range && !range->buffer;
}

std::string kind_name(const Binding& binding) {
  if (std::holds_alternative<BufferArray>(binding)) return "a buffer array of " + std::to_string(std::get<BufferArray>(binding).size());
  return is_none(binding) ? "nothing" : "a buffer range";
}

void check_count(const char* rule, std::string_view kind, const std::string& name, size_t expected, size_t given) {
  if (expected != given)
    throw BindingError(rule, std::string(kind), name, std::to_string(expected) + " bindings, optional ones included",
                       std::to_string(given));
}

// M: the buffer's context and heap.
void check_memory(const Dispatchable& dispatchable, const std::string& slot, const std::string& tensor, const BufferRange& range,
                  bool upload_allowed) {
  if (range.buffer->closed()) throw BindingError("L1", slot, tensor, "a live buffer", "a closed one");
  if (range.buffer->context() != dispatchable.context())
    throw BindingError("M3", slot, tensor, "a buffer of the operator's context", "a buffer of another context");
  const Heap heap = range.buffer->heap();
  if (heap == Heap::default_ || (upload_allowed && heap == Heap::upload)) return;
  throw BindingError(upload_allowed ? "M2" : "M1", slot, tensor, upload_allowed ? "the heap 'default' or 'upload'" : "the heap 'default'",
                     "'" + std::string(name(heap)) + "'");
}

// R1: inside the buffer, computed without overflow.
void check_inside(const std::string& slot, const std::string& tensor, const BufferRange& range) {
  const uint64_t size = range.buffer->bytes();
  if (range.offset <= size && range.bytes <= size - range.offset) return;
  throw BindingError("R1", slot, tensor, "a range inside the buffer's " + bytes_text(size),
                     "offset " + std::to_string(range.offset) + ", " + bytes_text(range.bytes));
}

void check_aligned(const char* rule, const std::string& slot, const std::string& tensor, const BufferRange& range, uint64_t alignment) {
  if (range.offset % alignment != 0)
    throw BindingError(rule, slot, tensor, "an offset that is a multiple of " + std::to_string(alignment), std::to_string(range.offset));
}

void check_size(const char* rule, const std::string& slot, const std::string& tensor, const BufferRange& range, uint64_t bytes) {
  if (range.bytes < bytes) throw BindingError(rule, slot, tensor, "at least " + bytes_text(bytes), bytes_text(range.bytes));
}

void check_tensor(const Dispatchable& dispatchable, const std::string& slot, const Slot& described, const BufferRange& range,
                  bool upload_allowed) {
  check_memory(dispatchable, slot, described.name, range, upload_allowed);
  check_inside(slot, described.name, range);
  check_aligned("R3", slot, described.name, range, std::max(kTensorAlignment, described.desc->alignment));
  check_size("R2", slot, described.name, range, described.desc->bytes());
}

// One tensor of an execution: C4, C5, C6, O2, then memory and ranges.
void check_execution_slot(const Dispatchable& dispatchable, const std::string& slot, const Slot& described, const Binding& binding) {
  if (std::holds_alternative<BufferArray>(binding)) throw BindingError("C6", slot, described.name, "a buffer range", kind_name(binding));
  const bool none = is_none(binding);
  if (!described.desc) {
    if (!none) throw BindingError("C4", slot, described.name, "nothing: the tensor is described as absent", kind_name(binding));
    return;
  }
  if (described.desc->owned) {
    if (!none)
      throw BindingError("O2", slot, described.name, "nothing: the tensor is owned and was bound at initialisation", kind_name(binding));
    return;
  }
  if (none) {
    if (described.desc->bytes() == 0) return;  // R8
    throw BindingError("C5", slot, described.name, "a buffer range of " + bytes_text(described.desc->bytes()), "nothing");
  }
  check_tensor(dispatchable, slot, described, std::get<BufferRange>(binding), false);
}

void check_target_inputs(const Dispatchable& initializer, const Dispatchable& target, size_t index, const Binding& binding) {
  const std::string slot = slot_name("inputs", index);
  const auto& inputs = target.inputs();
  const bool owns = std::any_of(inputs.begin(), inputs.end(),
                                [](const Slot& input) { return input.desc && input.desc->owned && input.desc->bytes() > 0; });
  if (is_none(binding) || (std::holds_alternative<BufferArray>(binding) && std::get<BufferArray>(binding).empty())) {
    if (owns) throw BindingError("I3", slot, target.name(), "a buffer array: the operator has owned tensors", "nothing");
    return;
  }
  const auto* array = std::get_if<BufferArray>(&binding);
  if (!array)
    throw BindingError("I1", slot, target.name(), "a buffer array with one entry per input of '" + target.name() + "'", kind_name(binding));
  if (array->size() != inputs.size())
    throw BindingError("I2", slot, target.name(), std::to_string(inputs.size()) + " entries", std::to_string(array->size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string entry = slot + "[" + std::to_string(i) + "]";
    const bool owned = inputs[i].desc && inputs[i].desc->owned, bound = (*array)[i].buffer != nullptr;
    if (!owned && bound)
      throw BindingError("O3", entry, inputs[i].name, "nothing: the tensor is not owned and is bound at execution", "a buffer range");
    if (owned && !bound && inputs[i].desc->bytes() > 0)
      throw BindingError("O2", entry, inputs[i].name, "a buffer range: the tensor is owned", "nothing");
    if (owned && bound) check_tensor(initializer, entry, inputs[i], (*array)[i], true);
  }
}

void check_persistent_output(const Dispatchable& initializer, const Dispatchable& target, size_t index, const Binding& binding) {
  const std::string slot = slot_name("outputs", index);
  const uint64_t bytes = target.binding_properties().persistent_bytes;
  if (std::holds_alternative<BufferArray>(binding)) throw BindingError("C6", slot, target.name(), "a buffer range", kind_name(binding));
  if (is_none(binding)) {
    if (bytes > 0) throw BindingError("I4", slot, target.name(), "the persistent resource of " + bytes_text(bytes), "nothing");
    return;
  }
  if (bytes == 0) throw BindingError("I4", slot, target.name(), "nothing: the operator needs no persistent resource", kind_name(binding));
  const auto& range = std::get<BufferRange>(binding);
  check_memory(initializer, slot, target.name(), range, false);
  check_inside(slot, target.name(), range);
  check_aligned("P2", slot, target.name(), range, kResourceAlignment);
  check_size("P2", slot, target.name(), range, bytes);
}

// A range of device memory with the slot that it is bound to.
struct Extent {
  std::string slot, tensor;
  uint64_t memory, begin, end;
  uint64_t tensor_end;  // begin + TotalTensorSize, for H7
  uint64_t buffer;
  size_t index;
};

Extent extent_of(std::string slot, const std::string& tensor, const BufferRange& range, uint64_t tensor_bytes, size_t index) {
  const uint64_t begin = range.buffer->memory_offset() + range.offset;
  return {std::move(slot),    tensor, range.buffer->memory(), begin, begin + range.bytes, begin + std::min(tensor_bytes, range.bytes),
          range.buffer->id(), index};
}

bool overlap(const Extent& a, const Extent& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

std::string place(const Extent& extent) {
  return extent.slot + " (bytes " + std::to_string(extent.begin) + " to " + std::to_string(extent.end) + " of memory " +
         std::to_string(extent.memory) + ")";
}

[[noreturn]] void refuse_overlap(const char* rule, const Extent& a, const Extent& b) {
  throw BindingError(rule, a.slot, a.tensor, "memory apart from that of " + b.slot, place(a) + " and " + place(b));
}

struct Extents {
  std::vector<Extent> inputs, outputs, temporary, persistent;
};

Extents extents_of(const Dispatchable& dispatchable, const BoundState& state) {
  Extents extents;
  const auto add = [](std::vector<Extent>& into, const std::string& slot, const std::string& tensor, const BufferRange& range,
                      uint64_t tensor_bytes, size_t index) {
    if (range.buffer && range.bytes > 0) into.push_back(extent_of(slot, tensor, range, tensor_bytes, index));
  };
  const auto add_list = [&](std::vector<Extent>& into, std::string_view kind, const std::optional<std::vector<Binding>>& bindings,
                            const std::vector<Slot>& slots) {
    if (!bindings) return;
    for (size_t i = 0; i < bindings->size(); ++i) {
      const std::string slot = slot_name(kind, i);
      const uint64_t bytes = i < slots.size() && slots[i].desc ? slots[i].desc->bytes() : ~uint64_t{0};
      if (const auto* array = std::get_if<BufferArray>(&(*bindings)[i]))
        for (size_t j = 0; j < array->size(); ++j) add(into, slot + "[" + std::to_string(j) + "]", "", (*array)[j], (*array)[j].bytes, i);
      else
        add(into, slot, i < slots.size() ? slots[i].name : "", range_of((*bindings)[i]), bytes, i);
    }
  };
  add_list(extents.inputs, "inputs", state.inputs, dispatchable.inputs());
  add_list(extents.outputs, "outputs", state.outputs, dispatchable.outputs());
  add(extents.temporary, "temporary", "", range_of(state.temporary), ~uint64_t{0}, 0);
  add(extents.persistent, "persistent", "", range_of(state.persistent), ~uint64_t{0}, 0);
  return extents;
}

// H4 .. H6: an output on an input's bytes is right only for operators that support it, on identical ranges and descriptions.
void check_in_place(const Dispatchable& dispatchable, const Extent& output, const Extent& input) {
  if (output.begin != input.begin || output.end != input.end) refuse_overlap("H5", output, input);
  if (!dispatchable.supports_in_place(input.index, output.index))
    throw BindingError("H4", output.slot, output.tensor,
                       "other memory than " + input.slot + ": '" + dispatchable.name() + "' does not run in place", "the same range");
  const auto &a = dispatchable.inputs()[input.index].desc, &b = dispatchable.outputs()[output.index].desc;
  if (a->dtype != b->dtype || a->shape != b->shape || a->strides != b->strides)
    throw BindingError("H6", output.slot, output.tensor, "the description of " + input.slot + ", " + to_string(*a) + ", to run in place",
                       to_string(*b));
}

void check_execution_hazards(const Dispatchable& dispatchable, const Extents& extents) {
  for (const auto& output : extents.outputs)
    for (const auto& input : extents.inputs)
      if (overlap(output, input)) check_in_place(dispatchable, output, input);
}

void check_initializer_hazards(const Extents& extents) {
  for (const auto& output : extents.outputs)
    for (const auto& input : extents.inputs)
      if (output.buffer == input.buffer || overlap(output, input))
        throw BindingError("H11", output.slot, output.tensor,
                           "another buffer than " + input.slot + ": initialisation copies between resources", "the same buffer");
}

}  // namespace

BufferRange range_of(const Binding& binding) {
  const auto* range = std::get_if<BufferRange>(&binding);
  return range ? *range : BufferRange{};
}

void check_inputs(const Dispatchable& dispatchable, const std::vector<Binding>& bindings) {
  if (dispatchable.is_initializer()) {
    const auto targets = dispatchable.targets();
    check_count("I1", "inputs", dispatchable.name(), targets.size(), bindings.size());
    for (size_t i = 0; i < targets.size(); ++i) check_target_inputs(dispatchable, *targets[i], i, bindings[i]);
    return;
  }
  const auto& slots = dispatchable.inputs();
  check_count("C1", "inputs", dispatchable.name(), slots.size(), bindings.size());
  for (size_t i = 0; i < slots.size(); ++i) check_execution_slot(dispatchable, slot_name("inputs", i), slots[i], bindings[i]);
}

void check_outputs(const Dispatchable& dispatchable, const std::vector<Binding>& bindings) {
  if (dispatchable.is_initializer()) {
    const auto targets = dispatchable.targets();
    check_count("I4", "outputs", dispatchable.name(), targets.size(), bindings.size());
    for (size_t i = 0; i < targets.size(); ++i) check_persistent_output(dispatchable, *targets[i], i, bindings[i]);
    return;
  }
  const auto& slots = dispatchable.outputs();
  check_count("C2", "outputs", dispatchable.name(), slots.size(), bindings.size());
  for (size_t i = 0; i < slots.size(); ++i) check_execution_slot(dispatchable, slot_name("outputs", i), slots[i], bindings[i]);
}

void check_resource(const Dispatchable& dispatchable, std::string_view slot_view, const Binding& binding, uint64_t bytes) {
  const std::string slot(slot_view);
  if (std::holds_alternative<BufferArray>(binding)) throw BindingError("C6", slot, "", "a buffer range", kind_name(binding));
  if (is_none(binding)) return;  // P1; a missing one is found when the table is used
  if (dispatchable.is_initializer() && slot == "persistent")
    throw BindingError("I6", slot, "", "nothing: an initializer has no persistent resource", "a buffer range");
  if (bytes == 0) throw BindingError("P3", slot, "", "nothing: '" + dispatchable.name() + "' needs none", "a buffer range");
  const auto& range = std::get<BufferRange>(binding);
  check_memory(dispatchable, slot, "", range, false);
  check_inside(slot, "", range);
  check_aligned("P2", slot, "", range, kResourceAlignment);
  check_size("P2", slot, "", range, bytes);
}

void check_hazards(const Dispatchable& dispatchable, const BoundState& state) {
  const Extents extents = extents_of(dispatchable, state);
  if (dispatchable.is_initializer())
    check_initializer_hazards(extents);
  else
    check_execution_hazards(dispatchable, extents);
  for (size_t i = 0; i < extents.outputs.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Extent &a = extents.outputs[i], &b = extents.outputs[j];
      if (a.memory == b.memory && a.begin < b.tensor_end && b.begin < a.tensor_end)
        refuse_overlap(dispatchable.is_initializer() ? "H12" : "H7", a, b);
    }
  for (const auto& persistent : extents.persistent)
    for (const auto& output : extents.outputs)
      if (overlap(persistent, output)) refuse_overlap("H8", output, persistent);
  for (const auto& temporary : extents.temporary)
    for (const auto* others : {&extents.inputs, &extents.outputs, &extents.persistent})
      for (const auto& other : *others)
        if (overlap(temporary, other)) refuse_overlap("H10", temporary, other);
}

void check_complete(const Dispatchable& dispatchable, const BoundState& state) {
  const auto missing = [&](const std::string& slot, const std::string& tensor, const std::string& what) {
    throw BindingError("C9", slot, tensor, what + " before the dispatch", "nothing");
  };
  const auto needs = [&](const std::vector<Slot>& slots, const char* kind) {
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].desc && !slots[i].desc->owned && slots[i].desc->bytes() > 0)
        missing(slot_name(kind, i), slots[i].name, "a binding of this tensor");
  };
  const auto properties = dispatchable.binding_properties();
  if (dispatchable.is_initializer()) {
    const auto targets = dispatchable.targets();
    for (size_t i = 0; i < targets.size(); ++i) {
      const Binding none;
      if (!state.inputs) check_target_inputs(dispatchable, *targets[i], i, none);
      if (!state.outputs) check_persistent_output(dispatchable, *targets[i], i, none);
    }
  } else {
    if (!state.inputs) needs(dispatchable.inputs(), "inputs");
    if (!state.outputs) needs(dispatchable.outputs(), "outputs");
    if (properties.persistent_bytes > 0 && is_none(state.persistent))
      throw BindingError("P2", "persistent", "", "a buffer range of " + bytes_text(properties.persistent_bytes), "nothing");
  }
  if (properties.temporary_bytes > 0 && is_none(state.temporary))
    throw BindingError("P2", "temporary", "", "a buffer range of " + bytes_text(properties.temporary_bytes), "nothing");
}

}  // namespace pumice
