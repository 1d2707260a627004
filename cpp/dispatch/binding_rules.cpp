#include "dispatch/binding_rules.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {
namespace {

using Presence = Requirement::Presence;
using Kind = SlotName::Kind;

constexpr uint64_t kResourceAlignment = 256;  // alignment of temporary and persistent resources

std::string format_bytes(uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

const DescribedRange* bound_range(const Binding& binding) {
  const auto* range = std::get_if<DescribedRange>(&binding);
  return range && range->buffer ? range : nullptr;
}

std::string kind_name(const Binding& binding) {
  if (const auto* array = std::get_if<BufferArray>(&binding)) return "a buffer array of " + std::to_string(array->size());
  return bound_range(binding) ? "a buffer range" : "nothing";
}

[[noreturn]] void refuse(std::string_view rule, const SlotName& slot, std::string_view tensor, std::string expected, std::string actual) {
  throw BindingError(std::string(rule), slot.text(), std::string(tensor), std::move(expected), std::move(actual));
}

Requirement tensor_requirement(std::string_view tensor, const TensorDesc& desc, std::string_view rule, std::string_view reason) {
  Requirement slot{tensor, &desc, desc.bytes(), desc.required_alignment()};
  slot.presence = slot.bytes > 0 ? Presence::required : Presence::optional;  // R8: tensors without bytes need no memory
  slot.presence_rule = rule, slot.reason = reason;
  slot.alignment_rule = "R3", slot.size_rule = "R2";
  return slot;
}

Requirement absent_requirement(std::string_view tensor, std::string_view rule, std::string_view reason) {
  Requirement slot;
  slot.tensor = tensor;
  slot.presence = Presence::forbidden;
  slot.presence_rule = rule, slot.reason = reason;
  return slot;
}

Requirement resource_requirement(std::string_view tensor, uint64_t bytes, Presence presence) {
  Requirement slot{tensor, nullptr, bytes, kResourceAlignment, presence};
  slot.alignment_rule = slot.size_rule = "P2";
  return slot;
}

Requirement execution_requirement(const Slot& slot) {
  if (!slot.desc) return absent_requirement(slot.name, "C4", "the tensor is described as absent");
  if (slot.desc->owned) return absent_requirement(slot.name, "O2", "the tensor is owned and was bound at initialisation");
  return tensor_requirement(slot.name, *slot.desc, "C5", "the tensor is described");
}

Requirement initialization_requirement(const Slot& slot) {
  if (!slot.desc || !slot.desc->owned) return absent_requirement(slot.name, "O3", "the tensor is not owned and is bound at execution");
  Requirement owned = tensor_requirement(slot.name, *slot.desc, "O2", "the tensor is owned");
  owned.upload_allowed = true;
  return owned;
}

bool same_strides(const TensorDesc& a, const TensorDesc& b) {
  for (size_t axis = 0; axis < a.shape.size(); ++axis)
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  return true;
}

// Text with the strides, even if packed, because only the strides may differ.
std::string format_strides(const TensorDesc& desc) {
  return std::string(name(desc.dtype)) + to_string(desc.shape) + " with strides " + to_string(desc.strides);
}

template <typename Extent>
bool overlap(const Extent& a, const Extent& b) {
  return a.memory == b.memory && a.begin < b.end && b.begin < a.end;
}

// Returns the range bound to a slot.
const BufferRange& range_at(const BoundView& bound, const SlotName& slot) {
  if (slot.kind == Kind::temporary) return range_of(*bound.temporary);
  if (slot.kind == Kind::persistent) return range_of(*bound.persistent);
  const Binding& binding = (slot.kind == Kind::inputs ? *bound.inputs : *bound.outputs)[static_cast<size_t>(slot.index)];
  const auto* array = std::get_if<BufferArray>(&binding);
  return array ? (*array)[static_cast<size_t>(slot.entry)] : range_of(binding);
}

// A slot and its range as the user bound it: users do not know the offset in the engine's memory.
std::string describe_binding(const SlotName& slot, const BufferRange& range) {
  return slot.text() + " (" + to_string(range) + ")";
}

template <typename Extent>
[[noreturn]] void refuse_overlap(std::string_view rule, const BoundView& bound, const Extent& a, const Extent& b) {
  const std::string shared = a.buffer == b.buffer ? "" : ", buffers on the same memory";
  refuse(rule, a.slot, a.requirement->tensor, "memory apart from that of " + b.slot.text(),
         describe_binding(a.slot, range_at(bound, a.slot)) + " and " + describe_binding(b.slot, range_at(bound, b.slot)) + shared);
}

}  // namespace

const BufferRange& range_of(const Binding& binding) {
  static const BufferRange none;
  const auto* range = std::get_if<DescribedRange>(&binding);
  return range ? *range : none;
}

std::string SlotName::text() const {
  constexpr std::string_view kinds[] = {"inputs", "outputs", "temporary", "persistent"};
  std::string text(kinds[static_cast<size_t>(kind)]);
  for (const int32_t i : {index, entry})
    if (i >= 0) text += "[" + std::to_string(i) + "]";
  return text;
}

BindingRules::BindingRules(const Dispatchable& dispatchable) : dispatchable_(dispatchable), initializer_(dispatchable.is_initializer()) {
  const auto properties = dispatchable.binding_properties();
  const auto resource = [&](uint64_t bytes) {
    return bytes > 0 ? resource_requirement(dispatchable.name(), bytes, Presence::optional)
                     : absent_requirement(dispatchable.name(), "P3", "it needs no such resource");
  };
  temporary_ = resource(properties.temporary_bytes);
  persistent_ = initializer_ ? absent_requirement(dispatchable.name(), "I6", "an initializer has no persistent resource")
                             : resource(properties.persistent_bytes);
  if (initializer_)
    add_initialization(dispatchable);
  else
    add_execution(dispatchable);
  bound_slots_.reserve(std::max(inputs_.size(), outputs_.size()) + 1);
}

void BindingRules::add_execution(const Dispatchable& dispatchable) {
  for (const Slot& slot : dispatchable.inputs()) inputs_.push_back(execution_requirement(slot));
  for (const Slot& slot : dispatchable.outputs()) outputs_.push_back(execution_requirement(slot));
}

void BindingRules::add_initialization(const Dispatchable& dispatchable) {
  for (const Dispatchable* target : dispatchable.targets()) {
    const size_t first = inputs_.size();
    for (const Slot& slot : target->inputs()) inputs_.push_back(initialization_requirement(slot));
    const bool owns = std::any_of(inputs_.begin() + static_cast<std::ptrdiff_t>(first), inputs_.end(),
                                  [](const Requirement& input) { return input.presence == Presence::required; });
    targets_.push_back({target->name(), first, inputs_.size() - first, owns});
    Requirement persistent;
    if (const uint64_t bytes = target->binding_properties().persistent_bytes) {
      persistent = resource_requirement(target->name(), bytes, Presence::required);
      persistent.presence_rule = "I4", persistent.reason = "the operator's persistent resource";
    } else {
      persistent = absent_requirement(target->name(), "I4", "the operator needs no persistent resource");
    }
    outputs_.push_back(persistent);
  }
}

void BindingRules::check_inputs(const Bindings& bindings) {
  if (initializer_)
    check_targets(bindings);
  else
    check_list(Kind::inputs, inputs_, bindings, "C1");
}

void BindingRules::check_outputs(const Bindings& bindings) {
  check_list(Kind::outputs, outputs_, bindings, initializer_ ? "I4" : "C2");
}

void BindingRules::check_temporary(const Binding& binding) {
  check_resource(Kind::temporary, temporary_, binding);
}

void BindingRules::check_persistent(const Binding& binding) {
  check_resource(Kind::persistent, persistent_, binding);
}

// Collects the ranges of a call, one per slot, and checks kind, count, then the rules for every range.
void BindingRules::check_list(Kind kind, const std::vector<Requirement>& slots, const Bindings& bindings, std::string_view count_rule) {
  bound_slots_.clear();
  for (size_t i = 0; i < bindings.size(); ++i) {
    const SlotName slot{kind, static_cast<int32_t>(i)};
    if (std::holds_alternative<BufferArray>(bindings[i]))
      refuse("C6", slot, i < slots.size() ? slots[i].tensor : "", "a buffer range", kind_name(bindings[i]));
    if (i < slots.size()) bound_slots_.push_back({slot, &slots[i], bound_range(bindings[i])});
  }
  if (slots.size() != bindings.size())
    refuse(count_rule, {kind}, dispatchable_.name(), std::to_string(slots.size()) + " bindings, optional ones included",
           std::to_string(bindings.size()));
  check_bound_slots();
}

// Checks an initializer's inputs, one array per target operator: rules I1, I2, I3.
void BindingRules::check_targets(const Bindings& bindings) {
  const auto slot = [](size_t i, int32_t entry = -1) { return SlotName{Kind::inputs, static_cast<int32_t>(i), entry}; };
  const auto array_of = [&](size_t i) {
    const auto* array = std::get_if<BufferArray>(&bindings[i]);
    return array && !array->empty() ? array : nullptr;
  };
  for (size_t i = 0; i < bindings.size(); ++i)
    if (bound_range(bindings[i]))
      refuse("I1", slot(i), i < targets_.size() ? targets_[i].name : "", "a buffer array with one entry per input of the operator",
             kind_name(bindings[i]));
  if (targets_.size() != bindings.size())
    refuse("I1", {Kind::inputs}, dispatchable_.name(), std::to_string(targets_.size()) + " buffer arrays, one per operator",
           std::to_string(bindings.size()));
  for (size_t i = 0; i < targets_.size(); ++i)
    if (const auto* array = array_of(i); array && array->size() != targets_[i].count)
      refuse("I2", slot(i), targets_[i].name, std::to_string(targets_[i].count) + " entries", std::to_string(array->size()));
  bound_slots_.clear();
  for (size_t i = 0; i < targets_.size(); ++i) {
    const auto* array = array_of(i);
    if (!array && targets_[i].owns)
      refuse("I3", slot(i), targets_[i].name, "a buffer array: the operator has owned tensors", kind_name(bindings[i]));
    for (size_t k = 0; array && k < array->size(); ++k)
      bound_slots_.push_back(
          {slot(i, static_cast<int32_t>(k)), &inputs_[targets_[i].first + k], (*array)[k].buffer ? &(*array)[k] : nullptr});
  }
  check_bound_slots();
}

void BindingRules::check_resource(Kind kind, const Requirement& slot, const Binding& binding) {
  if (std::holds_alternative<BufferArray>(binding)) refuse("C6", {kind}, slot.tensor, "a buffer range", kind_name(binding));
  bound_slots_.assign(1, {{kind}, &slot, bound_range(binding)});
  check_bound_slots();
}

// Checks one rule after the other for all slots, so that the first broken rule is reported.
void BindingRules::check_bound_slots() const {
  for (const auto& [slot, needs, range] : bound_slots_) {
    if (needs->presence == Presence::forbidden && range)
      refuse(needs->presence_rule, slot, needs->tensor, "nothing: " + std::string(needs->reason), "a buffer range");
    if (needs->presence == Presence::required && !range)
      refuse(needs->presence_rule, slot, needs->tensor,
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
      refuse("R1", bound_slot.slot, bound_slot.requirement->tensor, "a range inside the buffer's " + format_bytes(size),
             to_string(*bound_slot.range));
  }
  for (const BoundSlot& bound_slot : bound_slots_)
    if (has_bytes(bound_slot) && bound_slot.range->offset % bound_slot.requirement->alignment != 0)
      refuse(bound_slot.requirement->alignment_rule, bound_slot.slot, bound_slot.requirement->tensor,
             "an offset that is a multiple of " + std::to_string(bound_slot.requirement->alignment),
             std::to_string(bound_slot.range->offset));
  for (const BoundSlot& bound_slot : bound_slots_)
    if (has_bytes(bound_slot) && bound_slot.range->bytes < bound_slot.requirement->bytes)
      refuse(bound_slot.requirement->size_rule, bound_slot.slot, bound_slot.requirement->tensor,
             "at least " + format_bytes(bound_slot.requirement->bytes), format_bytes(bound_slot.range->bytes));
  for (const BoundSlot& bound_slot : bound_slots_) {
    if (!bound_slot.range || !bound_slot.range->desc || !bound_slot.requirement->desc) continue;
    const TensorDesc &expected_desc = *bound_slot.requirement->desc, &bound_desc = *bound_slot.range->desc;
    if (expected_desc.dtype != bound_desc.dtype)
      refuse("T1", bound_slot.slot, bound_slot.requirement->tensor, to_string(expected_desc), to_string(bound_desc));
    if (expected_desc.shape != bound_desc.shape)
      refuse("T2", bound_slot.slot, bound_slot.requirement->tensor, to_string(expected_desc), to_string(bound_desc));
    if (!same_strides(expected_desc, bound_desc))
      refuse("T3", bound_slot.slot, bound_slot.requirement->tensor, format_strides(expected_desc), format_strides(bound_desc));
  }
}

// Rules L1 and M: the buffer is open, belongs to the operator's context, and is in an allowed heap.
void BindingRules::check_memory(const BoundSlot& bound_slot) const {
  const Buffer& buffer = *bound_slot.range->buffer;
  const std::string_view tensor = bound_slot.requirement->tensor;
  if (buffer.closed()) refuse("L1", bound_slot.slot, tensor, "a live buffer", "a closed one");
  if (buffer.context() != dispatchable_.context())
    refuse("M3", bound_slot.slot, tensor, "a buffer of the operator's context", "a buffer of another context");
  const Heap heap = buffer.heap();
  const bool upload = bound_slot.requirement->upload_allowed;
  if (heap == Heap::default_ || (upload && heap == Heap::upload)) return;
  refuse(upload ? "M2" : "M1", bound_slot.slot, tensor, upload ? "the heap 'default' or 'upload'" : "the heap 'default'",
         "'" + std::string(name(heap)) + "'");
}

void BindingRules::collect_list(Kind kind, const Bindings* bindings, const std::vector<Requirement>& slots, Extents& extents) const {
  extents.clear();
  if (!bindings) return;
  const auto add = [&](const SlotName& slot, const Requirement& needs, const BufferRange& range) {
    if (!range.buffer || needs.bytes == 0) return;
    const uint64_t begin = range.buffer->memory_offset() + range.offset;
    extents.push_back({slot, &needs, range.buffer->memory(), begin, begin + range.bytes, begin + needs.bytes, range.buffer->id()});
  };
  for (size_t i = 0; i < bindings->size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (const auto* array = std::get_if<BufferArray>(&(*bindings)[i]))
      for (size_t k = 0; k < array->size(); ++k) add({kind, index, static_cast<int32_t>(k)}, slots[targets_[i].first + k], (*array)[k]);
    else
      add({kind, index}, slots[i], range_of((*bindings)[i]));
  }
}

void BindingRules::collect(const BoundView& bound) {
  collect_list(Kind::inputs, bound.inputs, inputs_, input_extents_);
  collect_list(Kind::outputs, bound.outputs, outputs_, output_extents_);
  const auto collect_resource = [](Kind kind, const Binding* binding, const Requirement& needs, Extents& extents) {
    extents.clear();
    const auto* range = binding ? bound_range(*binding) : nullptr;
    if (!range) return;
    const uint64_t begin = range->buffer->memory_offset() + range->offset, end = begin + range->bytes;
    extents.push_back({{kind}, &needs, range->buffer->memory(), begin, end, end, range->buffer->id()});
  };
  collect_resource(Kind::temporary, bound.temporary, temporary_, temporary_extents_);
  collect_resource(Kind::persistent, bound.persistent, persistent_, persistent_extents_);
}

// H4, H6: an output may alias an input only if the operator supports it and the descriptions are equal.
void BindingRules::check_in_place(const Extent& output, const Extent& input) const {
  if (!dispatchable_.supports_in_place(static_cast<size_t>(input.slot.index), static_cast<size_t>(output.slot.index)))
    refuse("H4", output.slot, output.requirement->tensor,
           "other memory than " + input.slot.text() + ": '" + dispatchable_.name() + "' does not run in place of it", "the same range");
  const TensorDesc &a = *input.requirement->desc, &b = *output.requirement->desc;
  if (a.dtype != b.dtype || a.shape != b.shape || !same_strides(a, b) || a.bytes() != b.bytes())
    refuse("H6", output.slot, output.requirement->tensor,
           "the description of " + input.slot.text() + ", " + format_strides(a) + " in " + format_bytes(a.bytes()) + ", to run in place",
           format_strides(b) + " in " + format_bytes(b.bytes()));
}

void BindingRules::check_hazards(const BoundView& bound) {
  collect(bound);
  for (const Extent& output : output_extents_)
    for (const Extent& input : input_extents_) {
      if (initializer_ && output.buffer == input.buffer)
        refuse("H11", output.slot, output.requirement->tensor,
               "another buffer than " + input.slot.text() + ": initialisation copies between resources", "the same buffer");
      if (!overlap(output, input)) continue;
      if (initializer_) refuse_overlap("H11", bound, output, input);
      if (output.begin != input.begin || output.end != input.end) refuse_overlap("H5", bound, output, input);
      check_in_place(output, input);
    }
  for (size_t i = 0; i < output_extents_.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Extent &a = output_extents_[i], &b = output_extents_[j];
      if (a.memory == b.memory && a.begin < b.tensor_end && b.begin < a.tensor_end)
        refuse_overlap(initializer_ ? "H12" : "H7", bound, a, b);
    }
  for (const Extent& persistent : persistent_extents_)
    for (const Extent& output : output_extents_)
      if (overlap(persistent, output)) refuse_overlap("H8", bound, output, persistent);
  for (const Extent& temporary : temporary_extents_)
    for (const Extents* others : {&input_extents_, &output_extents_, &persistent_extents_})
      for (const Extent& other : *others)
        if (overlap(temporary, other)) refuse_overlap("H10", bound, temporary, other);
}

void BindingRules::check_complete(const BoundView& bound) const {
  const auto check_bound = [](Kind kind, const Bindings* bindings, const std::vector<Requirement>& slots) {
    if (bindings) return;
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].presence == Presence::required)
        refuse("C9", {kind, static_cast<int32_t>(i)}, slots[i].tensor, "a binding of " + format_bytes(slots[i].bytes), "nothing");
  };
  check_bound(Kind::inputs, bound.inputs, inputs_);
  check_bound(Kind::outputs, bound.outputs, outputs_);
  const auto check_resource_bound = [](Kind kind, const Binding* binding, const Requirement& needs) {
    if (needs.bytes > 0 && (!binding || !bound_range(*binding)))
      refuse("P2", {kind}, needs.tensor, "a buffer range of " + format_bytes(needs.bytes), "nothing");
  };
  check_resource_bound(Kind::temporary, bound.temporary, temporary_);
  check_resource_bound(Kind::persistent, bound.persistent, persistent_);
}

BoundRanges BindingRules::ranges(const BoundView& bound) const {
  BoundRanges ranges;
  ranges.inputs.resize(inputs_.size());
  ranges.outputs.resize(outputs_.size());
  const auto fill = [&](const Bindings* bindings, const std::vector<Requirement>& slots, std::vector<BufferRange>& into) {
    for (size_t i = 0; bindings && i < bindings->size(); ++i) {
      const auto* range = bound_range((*bindings)[i]);
      if (range && slots[i].bytes > 0) into[i] = *range;
      const auto* array = std::get_if<BufferArray>(&(*bindings)[i]);
      for (size_t k = 0; array && k < array->size(); ++k)
        if (const size_t at = targets_[i].first + k; slots[at].bytes > 0) into[at] = (*array)[k];
    }
  };
  fill(bound.inputs, inputs_, ranges.inputs);
  fill(bound.outputs, outputs_, ranges.outputs);
  if (bound.temporary) ranges.temporary = range_of(*bound.temporary);
  if (bound.persistent) ranges.persistent = range_of(*bound.persistent);
  return ranges;
}

}  // namespace pumice
