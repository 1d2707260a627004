#include "graph/region/observed_region.h"

#include <map>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/injected_fault.h"
#include "core/rounding.h"
#include "graph/region/bound_program.h"

namespace pumice {
namespace {

constexpr uint64_t kWord = 4;  // copies move whole words

// Returns the tensor's byte offset in the first word that contains part of it.
uint64_t phase_of(const StoredValue& value) {
  return value.place.byte_offset % kWord;
}

uint64_t copied_bytes(const StoredValue& value) {
  return round_up(phase_of(value) + value.desc.bytes(), kWord);
}

}  // namespace

ObservedRegion::ObservedRegion(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs,
                               const ProgramGraph& graph, const std::vector<StoredValue>& stored, const ObserveOptions& observe_options)
    : compiled_(compiled), list_(compiled->context()) {
  if (const size_t num_steps = compiled->plan().steps.size();
      observe_options.steps && (*observe_options.steps < 1 || *observe_options.steps > num_steps))
    throw BindingError("K10", "steps", compiled->name(), "a number of steps from 1 to " + std::to_string(num_steps),
                       std::to_string(*observe_options.steps));
  for (size_t k = 0; k < stored.size(); ++k)
    if ((!observe_options.value_names || observe_options.value_names->contains(graph.value(stored[k].value).name)) &&
        (!observe_options.steps || is_available(stored[k], *observe_options.steps)))
      copied_.push_back(k);
  std::vector<uint64_t> input_bytes;
  for (size_t i = 0; i < inputs; ++i) input_bytes.push_back(input_desc(i).bytes());
  inputs_ = make_host_slots(compiled->context(), input_bytes, Heap::upload);
  make_slots(stored);
  if (const uint64_t bytes = compiled->plan().temporary_bytes) arena_ = Buffer::create(compiled->context(), bytes);
  record(persistent, stored, observe_options);
  describe_tensors(graph, stored);
}

Submission ObservedRegion::start(const Interrupted& interrupted) {
  fill(outputs_, kFillPattern, interrupted);
  fill(observed_, kFillPattern, interrupted);
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / kWord * kWord}, kFillPattern, interrupted);
  return list_.exec();
}

// Returns whether a value is complete after `steps` steps and not yet overwritten.
bool ObservedRegion::is_available(const StoredValue& value, size_t steps) const {
  const PlannedOperand& location = value.place;
  const auto overlaps = [&](const PlannedOperand& written) {
    return written.place == location.place && written.index == location.index &&
           written.byte_offset < location.byte_offset + value.desc.bytes() && location.byte_offset < written.byte_offset + written.bytes;
  };
  if (value.last_write >= steps) return false;
  for (size_t i = value.last_write + 1; i < steps; ++i) {
    const PlannedStep& step = compiled_->plan().steps[i];
    for (size_t k = 0; k < step.operands.size(); ++k)
      if (step.kernel->interface().bindings[k].access != Access::read && overlaps(step.operands[k])) return false;
  }
  return true;
}

// Returns, by step, the tensors (indices into copied_) to copy after it.
std::vector<std::vector<size_t>> ObservedRegion::copies_by_step(const std::vector<StoredValue>& stored,
                                                                const ObserveOptions& observe_options) {
  std::vector<std::vector<size_t>> copies(compiled_->plan().steps.size());
  for (size_t k = 0; k < copied_.size(); ++k)
    copies[observe_options.steps ? *observe_options.steps - 1 : stored[copied_[k]].last_write].push_back(k);
  return copies;
}

void ObservedRegion::record(const BufferRange& persistent, const std::vector<StoredValue>& stored, const ObserveOptions& observe_options) {
  std::vector<BufferRange> read, written_ranges;
  for (const HostSlot& slot : inputs_) read.push_back(slot.device_range());
  for (const HostSlot& slot : outputs_) written_ranges.push_back(slot.device_range());
  for (const auto& [from, to] : collect_copies(inputs_, true)) list_.copy(from, to);
  std::vector<Dispatch> dispatches = make_dispatches(compiled_, persistent, read, written_ranges, arena_);
  if (dispatches.size() != compiled_->plan().steps.size()) throw Error("a program that is observed has steps of no dispatch");
  const std::vector<std::vector<size_t>> last_write = copies_by_step(stored, observe_options);
  if (observe_options.steps) {
    dispatches.resize(*observe_options.steps);
    if (is_injected("race")) swap_dependent_dispatches(dispatches, *compiled_);
  }
  for (size_t i = 0; i < dispatches.size(); ++i) {
    list_.dispatch(std::move(dispatches[i]));
    for (const size_t k : last_write[i]) {
      const StoredValue& value = stored[copied_[k]];
      BufferRange source = range_of(value.place);
      source.offset -= phase_of(value);
      source.bytes = copied_bytes(value);
      list_.copy(source, observed_[k].device_range());
    }
  }
  for (const auto& [from, to] : collect_copies(observed_, false)) list_.copy(from, to);
  for (const auto& [from, to] : collect_copies(outputs_, false)) list_.copy(from, to);
  list_.commit();
}

void ObservedRegion::make_slots(const std::vector<StoredValue>& stored) {
  std::vector<uint64_t> output_bytes, observed_bytes;
  for (const Slot& output : compiled_->outputs()) output_bytes.push_back(output.desc->bytes());
  for (const size_t k : copied_) observed_bytes.push_back(copied_bytes(stored[k]));
  outputs_ = make_host_slots(compiled_->context(), output_bytes, Heap::readback);
  observed_ = make_host_slots(compiled_->context(), observed_bytes, Heap::readback);
}

BufferRange ObservedRegion::range_of(const PlannedOperand& place) const {
  if (place.place == MemoryKind::output) {
    BufferRange range = outputs_[place.index].device_range();
    range.offset += place.byte_offset;
    return range;
  }
  if (place.place != MemoryKind::temporary) throw Error("a value that is stored lies neither in the arena nor in an output");
  return {arena_, place.byte_offset, 0};
}

void ObservedRegion::describe_tensors(const ProgramGraph& graph, const std::vector<StoredValue>& stored) {
  std::vector<const PlannedStep*> last(graph.values.size(), nullptr);  // for each value, the last step that writes it
  std::map<std::string_view, std::set<std::string>> reads;             // keyed by node
  for (const PlannedStep& step : compiled_->plan().steps)
    for (size_t k = 0; k < step.operands.size(); ++k) {
      if (step.operands[k].value < 0) continue;
      const auto value = static_cast<size_t>(step.operands[k].value);
      const Access access = step.kernel->interface().bindings[k].access;
      if (access != Access::read) last[value] = &step;
      if (access != Access::write) reads[step.label].insert(graph.values[value].name);
    }
  for (size_t k = 0; k < stored.size(); ++k) {
    const PlannedStep& step = *last[static_cast<size_t>(stored[k].value)];
    const auto& read = reads[step.label];
    tensors_.push_back(
        {graph.value(stored[k].value).name, step.label, step.kernel->name(), {read.begin(), read.end()}, stored[k].desc, step.additions});
  }
  for (size_t k = 0; k < copied_.size(); ++k) tensors_[copied_[k]].bytes = observed_[k].bytes + phase_of(stored[copied_[k]]);
}

}  // namespace pumice
