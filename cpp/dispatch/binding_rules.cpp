#include "dispatch/binding_rules.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

using Presence = BindingRequirement::Presence;
using SlotKind = SlotName::SlotKind;

constexpr uint64_t kResourceAlignment = 256;  // alignment of temporary and persistent resources

std::string format_bytes(uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

const DescribedRange* find_range(const Binding& binding) {
  const auto* range = std::get_if<DescribedRange>(&binding);
  return range && range->buffer ? range : nullptr;
}

std::string describe_binding_kind(const Binding& binding) {
  if (const auto* array = std::get_if<BufferArray>(&binding)) return "a buffer array of " + std::to_string(array->size());
  return find_range(binding) ? "a buffer range" : "nothing";
}

[[noreturn]] void throw_binding_error(std::string_view rule, const SlotName& slot, std::string_view tensor, std::string expected,
                                      std::string actual) {
  throw BindingError(std::string(rule), slot.to_string(), std::string(tensor), std::move(expected), std::move(actual));
}

BindingRequirement make_tensor_requirement(std::string_view tensor, const TensorDesc& desc, std::string_view rule,
                                           std::string_view reason) {
  BindingRequirement slot{tensor, &desc, desc.bytes(), desc.required_alignment()};
  slot.presence = slot.bytes > 0 ? Presence::required : Presence::optional;  // R8: tensors without bytes need no memory
  slot.presence_rule = rule, slot.reason = reason;
  slot.alignment_rule = "R3", slot.size_rule = "R2";
  return slot;
}

BindingRequirement make_absent_requirement(std::string_view tensor, std::string_view rule, std::string_view reason) {
  BindingRequirement slot;
  slot.tensor = tensor;
  slot.presence = Presence::forbidden;
  slot.presence_rule = rule, slot.reason = reason;
  return slot;
}

BindingRequirement make_resource_requirement(std::string_view tensor, uint64_t bytes, Presence presence) {
  BindingRequirement slot{tensor, nullptr, bytes, kResourceAlignment, presence};
  slot.alignment_rule = slot.size_rule = "P2";
  return slot;
}

BindingRequirement make_execution_requirement(const TensorSlot& slot) {
  if (!slot.desc) return make_absent_requirement(slot.name, "C4", "the tensor is described as absent");
  if (slot.desc->owned) return make_absent_requirement(slot.name, "O2", "the tensor is owned and was bound at initialisation");
  return make_tensor_requirement(slot.name, *slot.desc, "C5", "the tensor is described");
}

BindingRequirement make_initialization_requirement(const TensorSlot& slot) {
  if (!slot.desc || !slot.desc->owned) return make_absent_requirement(slot.name, "O3", "the tensor is not owned and is bound at execution");
  BindingRequirement owned = make_tensor_requirement(slot.name, *slot.desc, "O2", "the tensor is owned");
  owned.upload_allowed = true;
  return owned;
}

bool have_same_strides(const TensorDesc& a, const TensorDesc& b) {
  for (size_t axis = 0; axis < a.shape.size(); ++axis)
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  return true;
}

// Always includes the strides, because two tensors may differ only in strides.
std::string format_strides(const TensorDesc& desc) {
  return std::string(name(desc.dtype)) + to_string(desc.shape) + " with strides " + to_string(desc.strides);
}

template <typename MemoryExtent>
bool do_extents_overlap(const MemoryExtent& a, const MemoryExtent& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

// Returns the range bound to a slot.
const BufferRange& find_bound_range(const BindingsView& bound, const SlotName& slot) {
  if (slot.kind == SlotKind::temporary) return get_range(*bound.temporary);
  if (slot.kind == SlotKind::persistent) return get_range(*bound.persistent);
  const Binding& binding = (slot.kind == SlotKind::inputs ? *bound.inputs : *bound.outputs)[static_cast<size_t>(slot.index)];
  const auto* array = std::get_if<BufferArray>(&binding);
  return array ? (*array)[static_cast<size_t>(slot.entry)] : get_range(binding);
}

// Describes a slot and its range with the user's buffer offset, not the offset in the memory block.
std::string describe_binding(const SlotName& slot, const BufferRange& range) {
  return slot.to_string() + " (" + to_string(range) + ")";
}

template <typename MemoryExtent>
[[noreturn]] void throw_overlap_error(std::string_view rule, const BindingsView& bound, const MemoryExtent& a, const MemoryExtent& b) {
  const std::string shared = a.buffer == b.buffer ? "" : ", buffers on the same memory";
  throw_binding_error(rule, a.slot, a.requirement->tensor, "memory that does not overlap that of " + b.slot.to_string(),
                      describe_binding(a.slot, find_bound_range(bound, a.slot)) + " and " +
                          describe_binding(b.slot, find_bound_range(bound, b.slot)) + shared);
}

}  // namespace

const BufferRange& get_range(const Binding& binding) {
  static const BufferRange none;
  const auto* range = std::get_if<DescribedRange>(&binding);
  return range ? *range : none;
}

std::string SlotName::to_string() const {
  constexpr std::string_view kinds[] = {"inputs", "outputs", "temporary", "persistent"};
  std::string text(kinds[static_cast<size_t>(kind)]);
  for (const int32_t i : {index, entry})
    if (i >= 0) text += "[" + std::to_string(i) + "]";
  return text;
}

BindingRules::BindingRules(const Dispatchable& dispatchable) : dispatchable_(dispatchable), initializer_(dispatchable.is_initializer()) {
  const auto properties = dispatchable.binding_properties();
  const auto resource = [&](uint64_t bytes) {
    return bytes > 0 ? make_resource_requirement(dispatchable.name(), bytes, Presence::optional)
                     : make_absent_requirement(dispatchable.name(), "P3", "it needs no such resource");
  };
  temporary_ = resource(properties.temporary_bytes);
  persistent_ = initializer_ ? make_absent_requirement(dispatchable.name(), "I6", "an initializer has no persistent resource")
                             : resource(properties.persistent_bytes);
  if (initializer_)
    add_initialization(dispatchable);
  else
    add_execution(dispatchable);
  bound_slots_.reserve(std::max(inputs_.size(), outputs_.size()) + 1);
}

void BindingRules::add_execution(const Dispatchable& dispatchable) {
  for (const TensorSlot& slot : dispatchable.inputs()) inputs_.push_back(make_execution_requirement(slot));
  for (const TensorSlot& slot : dispatchable.outputs()) outputs_.push_back(make_execution_requirement(slot));
}

void BindingRules::add_initialization(const Dispatchable& dispatchable) {
  for (const Dispatchable* target : dispatchable.get_initialized_operators()) {
    const size_t first = inputs_.size();
    for (const TensorSlot& slot : target->inputs()) inputs_.push_back(make_initialization_requirement(slot));
    const bool owns = std::any_of(inputs_.begin() + static_cast<std::ptrdiff_t>(first), inputs_.end(),
                                  [](const BindingRequirement& input) { return input.presence == Presence::required; });
    targets_.push_back({target->name(), first, inputs_.size() - first, owns});
    BindingRequirement persistent;
    if (const uint64_t bytes = target->binding_properties().persistent_bytes) {
      persistent = make_resource_requirement(target->name(), bytes, Presence::required);
      persistent.presence_rule = "I4", persistent.reason = "the operator's persistent resource";
    } else {
      persistent = make_absent_requirement(target->name(), "I4", "the operator needs no persistent resource");
    }
    outputs_.push_back(persistent);
  }
}

void BindingRules::check_inputs(const Bindings& bindings) {
  if (initializer_)
    check_initializer_inputs(bindings);
  else
    check_binding_list(SlotKind::inputs, inputs_, bindings, "C1");
}

void BindingRules::check_outputs(const Bindings& bindings) {
  check_binding_list(SlotKind::outputs, outputs_, bindings, initializer_ ? "I4" : "C2");
}

void BindingRules::check_temporary(const Binding& binding) {
  check_resource_binding(SlotKind::temporary, temporary_, binding);
}

void BindingRules::check_persistent(const Binding& binding) {
  check_resource_binding(SlotKind::persistent, persistent_, binding);
}

// Collects the ranges of a call, one per slot, and checks first their kinds, then their number, then the rules of each range.
void BindingRules::check_binding_list(SlotKind kind, const std::vector<BindingRequirement>& slots, const Bindings& bindings,
                                      std::string_view count_rule) {
  bound_slots_.clear();
  for (size_t i = 0; i < bindings.size(); ++i) {
    const SlotName slot{kind, static_cast<int32_t>(i)};
    if (std::holds_alternative<BufferArray>(bindings[i]))
      throw_binding_error("C6", slot, i < slots.size() ? slots[i].tensor : "", "a buffer range", describe_binding_kind(bindings[i]));
    if (i < slots.size()) bound_slots_.push_back({slot, &slots[i], find_range(bindings[i])});
  }
  if (slots.size() != bindings.size())
    throw_binding_error(count_rule, {kind}, dispatchable_.name(), std::to_string(slots.size()) + " bindings, optional ones included",
                        std::to_string(bindings.size()));
  check_bound_slots();
}

// Checks an initializer's inputs, one array per target operator: rules I1, I2, I3.
void BindingRules::check_initializer_inputs(const Bindings& bindings) {
  const auto slot = [](size_t i, int32_t entry = -1) { return SlotName{SlotKind::inputs, static_cast<int32_t>(i), entry}; };
  const auto array_of = [&](size_t i) {
    const auto* array = std::get_if<BufferArray>(&bindings[i]);
    return array && !array->empty() ? array : nullptr;
  };
  for (size_t i = 0; i < bindings.size(); ++i)
    if (find_range(bindings[i]))
      throw_binding_error("I1", slot(i), i < targets_.size() ? targets_[i].name : "",
                          "a buffer array with one entry per input of the operator", describe_binding_kind(bindings[i]));
  if (targets_.size() != bindings.size())
    throw_binding_error("I1", {SlotKind::inputs}, dispatchable_.name(),
                        std::to_string(targets_.size()) + " buffer arrays, one per operator", std::to_string(bindings.size()));
  for (size_t i = 0; i < targets_.size(); ++i)
    if (const auto* array = array_of(i); array && array->size() != targets_[i].count)
      throw_binding_error("I2", slot(i), targets_[i].name, std::to_string(targets_[i].count) + " entries", std::to_string(array->size()));
  bound_slots_.clear();
  for (size_t i = 0; i < targets_.size(); ++i) {
    const auto* array = array_of(i);
    if (!array && targets_[i].owns)
      throw_binding_error("I3", slot(i), targets_[i].name, "a buffer array: the operator has owned tensors",
                          describe_binding_kind(bindings[i]));
    for (size_t k = 0; array && k < array->size(); ++k)
      bound_slots_.push_back(
          {slot(i, static_cast<int32_t>(k)), &inputs_[targets_[i].first + k], (*array)[k].buffer ? &(*array)[k] : nullptr});
  }
  check_bound_slots();
}

void BindingRules::check_resource_binding(SlotKind kind, const BindingRequirement& slot, const Binding& binding) {
  if (std::holds_alternative<BufferArray>(binding))
    throw_binding_error("C6", {kind}, slot.tensor, "a buffer range", describe_binding_kind(binding));
  bound_slots_.assign(1, {{kind}, &slot, find_range(binding)});
  check_bound_slots();
}

// Checks one rule after the other for all slots, so that the first broken rule is reported.
void BindingRules::check_bound_slots() const {
  for (const auto& [slot, needs, range] : bound_slots_) {
    if (needs->presence == Presence::forbidden && range)
      throw_binding_error(needs->presence_rule, slot, needs->tensor, "nothing: " + std::string(needs->reason), "a buffer range");
    if (needs->presence == Presence::required && !range)
      throw_binding_error(needs->presence_rule, slot, needs->tensor,
                          "a buffer range of " + format_bytes(needs->bytes) + ": " + std::string(needs->reason), "nothing");
  }
  for (const BoundSlot& bound_slot : bound_slots_)
    if (bound_slot.range) check_memory(bound_slot);
  const auto has_bytes = [](const BoundSlot& bound_slot) {
    return bound_slot.range && bound_slot.requirement->bytes > 0;
  };  // R8: for a tensor without bytes any range is valid
  for (const BoundSlot& bound_slot : bound_slots_) {
    if (!has_bytes(bound_slot)) continue;
    const uint64_t size = bound_slot.range->buffer->bytes(), offset = bound_slot.range->offset;
    if (offset > size || bound_slot.range->bytes > size - offset)
      throw_binding_error("R1", bound_slot.slot, bound_slot.requirement->tensor, "a range inside the buffer's " + format_bytes(size),
                          to_string(*bound_slot.range));
  }
  for (const BoundSlot& bound_slot : bound_slots_)
    if (has_bytes(bound_slot) && bound_slot.range->offset % bound_slot.requirement->alignment != 0)
      throw_binding_error(bound_slot.requirement->alignment_rule, bound_slot.slot, bound_slot.requirement->tensor,
                          "an offset that is a multiple of " + std::to_string(bound_slot.requirement->alignment),
                          std::to_string(bound_slot.range->offset));
  for (const BoundSlot& bound_slot : bound_slots_)
    if (has_bytes(bound_slot) && bound_slot.range->bytes < bound_slot.requirement->bytes)
      throw_binding_error(bound_slot.requirement->size_rule, bound_slot.slot, bound_slot.requirement->tensor,
                          "at least " + format_bytes(bound_slot.requirement->bytes), format_bytes(bound_slot.range->bytes));
  for (const BoundSlot& bound_slot : bound_slots_) {
    if (!bound_slot.range || !bound_slot.range->desc || !bound_slot.requirement->desc) continue;
    const TensorDesc &expected_desc = *bound_slot.requirement->desc, &bound_desc = *bound_slot.range->desc;
    if (expected_desc.dtype != bound_desc.dtype)
      throw_binding_error("T1", bound_slot.slot, bound_slot.requirement->tensor, to_string(expected_desc), to_string(bound_desc));
    if (expected_desc.shape != bound_desc.shape)
      throw_binding_error("T2", bound_slot.slot, bound_slot.requirement->tensor, to_string(expected_desc), to_string(bound_desc));
    if (!have_same_strides(expected_desc, bound_desc))
      throw_binding_error("T3", bound_slot.slot, bound_slot.requirement->tensor, format_strides(expected_desc), format_strides(bound_desc));
  }
}

// Rules L1 and M: the buffer is open, belongs to the operator's context, and is in an allowed heap.
void BindingRules::check_memory(const BoundSlot& bound_slot) const {
  const Buffer& buffer = *bound_slot.range->buffer;
  const std::string_view tensor = bound_slot.requirement->tensor;
  if (buffer.closed()) throw_binding_error("L1", bound_slot.slot, tensor, "a live buffer", "a closed one");
  if (buffer.context() != dispatchable_.context())
    throw_binding_error("M3", bound_slot.slot, tensor, "a buffer of the operator's context", "a buffer of another context");
  const Heap heap = buffer.heap();
  const bool upload = bound_slot.requirement->upload_allowed;
  if (heap == Heap::default_ || (upload && heap == Heap::upload)) return;
  throw_binding_error(upload ? "M2" : "M1", bound_slot.slot, tensor, upload ? "the heap 'default' or 'upload'" : "the heap 'default'",
                      "'" + std::string(name(heap)) + "'");
}

void BindingRules::collect_list_extents(SlotKind kind, const Bindings* bindings, const std::vector<BindingRequirement>& slots,
                                        Extents& extents) const {
  extents.clear();
  if (!bindings) return;
  const auto add = [&](const SlotName& slot, const BindingRequirement& needs, const BufferRange& range) {
    if (!range.buffer || needs.bytes == 0) return;
    const uint64_t begin = range.buffer->memory_offset() + range.offset;
    extents.push_back({slot, &needs, range.buffer->memory(), begin, begin + range.bytes, begin + needs.bytes, range.buffer->id()});
  };
  for (size_t i = 0; i < bindings->size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (const auto* array = std::get_if<BufferArray>(&(*bindings)[i]))
      for (size_t k = 0; k < array->size(); ++k) add({kind, index, static_cast<int32_t>(k)}, slots[targets_[i].first + k], (*array)[k]);
    else
      add({kind, index}, slots[i], get_range((*bindings)[i]));
  }
}

void BindingRules::collect_memory_extents(const BindingsView& bound) {
  collect_list_extents(SlotKind::inputs, bound.inputs, inputs_, input_extents_);
  collect_list_extents(SlotKind::outputs, bound.outputs, outputs_, output_extents_);
  const auto collect_resource = [](SlotKind kind, const Binding* binding, const BindingRequirement& needs, Extents& extents) {
    extents.clear();
    const auto* range = binding ? find_range(*binding) : nullptr;
    if (!range) return;
    const uint64_t begin = range->buffer->memory_offset() + range->offset, end = begin + range->bytes;
    extents.push_back({{kind}, &needs, range->buffer->memory(), begin, end, end, range->buffer->id()});
  };
  collect_resource(SlotKind::temporary, bound.temporary, temporary_, temporary_extents_);
  collect_resource(SlotKind::persistent, bound.persistent, persistent_, persistent_extents_);
}

// H4, H6: an output may alias an input only if the operator supports it and the descriptions are equal.
void BindingRules::check_in_place(const MemoryExtent& output, const MemoryExtent& input) const {
  if (!dispatchable_.supports_in_place(static_cast<size_t>(input.slot.index), static_cast<size_t>(output.slot.index)))
    throw_binding_error("H4", output.slot, output.requirement->tensor,
                        "memory other than " + input.slot.to_string() + ": '" + dispatchable_.name() + "' cannot run in place of it",
                        "the same range");
  const TensorDesc &a = *input.requirement->desc, &b = *output.requirement->desc;
  if (a.dtype != b.dtype || a.shape != b.shape || !have_same_strides(a, b) || a.bytes() != b.bytes())
    throw_binding_error(
        "H6", output.slot, output.requirement->tensor,
        "the description of " + input.slot.to_string() + ", " + format_strides(a) + " in " + format_bytes(a.bytes()) + ", to run in place",
        format_strides(b) + " in " + format_bytes(b.bytes()));
}

void BindingRules::check_hazards(const BindingsView& bound) {
  collect_memory_extents(bound);
  for (const MemoryExtent& output : output_extents_)
    for (const MemoryExtent& input : input_extents_) {
      if (initializer_ && output.buffer == input.buffer)
        throw_binding_error("H11", output.slot, output.requirement->tensor,
                            "a buffer other than " + input.slot.to_string() + ": initialisation copies between resources",
                            "the same buffer");
      if (!do_extents_overlap(output, input)) continue;
      if (initializer_) throw_overlap_error("H11", bound, output, input);
      if (output.begin != input.begin || output.end != input.end) throw_overlap_error("H5", bound, output, input);
      check_in_place(output, input);
    }
  for (size_t i = 0; i < output_extents_.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const MemoryExtent &a = output_extents_[i], &b = output_extents_[j];
      if (a.memory == b.memory && a.begin < b.tensor_end && b.begin < a.tensor_end)
        throw_overlap_error(initializer_ ? "H12" : "H7", bound, a, b);
    }
  for (const MemoryExtent& persistent : persistent_extents_)
    for (const MemoryExtent& output : output_extents_)
      if (do_extents_overlap(persistent, output)) throw_overlap_error("H8", bound, output, persistent);
  for (const MemoryExtent& temporary : temporary_extents_)
    for (const Extents* others : {&input_extents_, &output_extents_, &persistent_extents_})
      for (const MemoryExtent& other : *others)
        if (do_extents_overlap(temporary, other)) throw_overlap_error("H10", bound, temporary, other);
}

void BindingRules::check_all_slots_bound(const BindingsView& bound) const {
  const auto check_bound = [](SlotKind kind, const Bindings* bindings, const std::vector<BindingRequirement>& slots) {
    if (bindings) return;
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].presence == Presence::required)
        throw_binding_error("C9", {kind, static_cast<int32_t>(i)}, slots[i].tensor, "a binding of " + format_bytes(slots[i].bytes),
                            "nothing");
  };
  check_bound(SlotKind::inputs, bound.inputs, inputs_);
  check_bound(SlotKind::outputs, bound.outputs, outputs_);
  const auto check_resource_bound = [](SlotKind kind, const Binding* binding, const BindingRequirement& needs) {
    if (needs.bytes > 0 && (!binding || !find_range(*binding)))
      throw_binding_error("P2", {kind}, needs.tensor, "a buffer range of " + format_bytes(needs.bytes), "nothing");
  };
  check_resource_bound(SlotKind::temporary, bound.temporary, temporary_);
  check_resource_bound(SlotKind::persistent, bound.persistent, persistent_);
}

BoundRanges BindingRules::get_ranges(const BindingsView& bound) const {
  BoundRanges ranges;
  ranges.inputs.resize(inputs_.size());
  ranges.outputs.resize(outputs_.size());
  const auto fill = [&](const Bindings* bindings, const std::vector<BindingRequirement>& slots, std::vector<BufferRange>& into) {
    for (size_t i = 0; bindings && i < bindings->size(); ++i) {
      const auto* range = find_range((*bindings)[i]);
      if (range && slots[i].bytes > 0) into[i] = *range;
      const auto* array = std::get_if<BufferArray>(&(*bindings)[i]);
      for (size_t k = 0; array && k < array->size(); ++k)
        if (const size_t at = targets_[i].first + k; slots[at].bytes > 0) into[at] = (*array)[k];
    }
  };
  fill(bound.inputs, inputs_, ranges.inputs);
  fill(bound.outputs, outputs_, ranges.outputs);
  if (bound.temporary) ranges.temporary = get_range(*bound.temporary);
  if (bound.persistent) ranges.persistent = get_range(*bound.persistent);
  return ranges;
}

}  // namespace pumice
