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
                               const ProgramGraph& graph, const std::vector<StoredValue>& stored, const Observed& what)
    : compiled_(compiled), list_(compiled->context()) {
  if (const size_t most = compiled->plan().steps.size(); what.steps && (*what.steps < 1 || *what.steps > most))
    throw BindingError("K10", "steps", compiled->name(), "a number of steps from 1 to " + std::to_string(most),
                       std::to_string(*what.steps));
  for (size_t k = 0; k < stored.size(); ++k)
    if ((!what.wanted || what.wanted->contains(graph.value(stored[k].value).name)) && (!what.steps || is_there(stored[k], *what.steps)))
      copied_.push_back(k);
  std::vector<uint64_t> input_bytes;
  for (size_t i = 0; i < inputs; ++i) input_bytes.push_back(input_desc(i).bytes());
  inputs_ = make_host_slots(compiled->context(), input_bytes, Heap::upload);
  make_slots(stored);
  if (const uint64_t bytes = compiled->plan().temporary_bytes) arena_ = Buffer::create(compiled->context(), bytes);
  record(persistent, stored, what);
  describe(graph, stored);
}

Submission ObservedRegion::start(const Interrupted& interrupted) {
  fill(outputs_, kFilled, interrupted);
  fill(observed_, kFilled, interrupted);
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / kWord * kWord}, kFilled, interrupted);
  return list_.exec();
}

// Returns whether a value is complete after `steps` steps and not yet overwritten.
bool ObservedRegion::is_there(const StoredValue& value, size_t steps) const {
  const PlannedOperand& own = value.place;
  const auto overlaps = [&](const PlannedOperand& written) {
    return written.place == own.place && written.index == own.index && written.byte_offset < own.byte_offset + value.desc.bytes() &&
           own.byte_offset < written.byte_offset + written.bytes;
  };
  if (value.complete >= steps) return false;
  for (size_t i = value.complete + 1; i < steps; ++i) {
    const PlannedStep& step = compiled_->plan().steps[i];
    for (size_t k = 0; k < step.operands.size(); ++k)
      if (step.kernel->interface().bindings[k].access != Access::read && overlaps(step.operands[k])) return false;
  }
  return true;
}

// Returns, by step, the tensors (indices into copied_) to copy after it.
std::vector<std::vector<size_t>> ObservedRegion::copies_by_step(const std::vector<StoredValue>& stored, const Observed& what) {
  std::vector<std::vector<size_t>> copies(compiled_->plan().steps.size());
  for (size_t k = 0; k < copied_.size(); ++k) copies[what.steps ? *what.steps - 1 : stored[copied_[k]].complete].push_back(k);
  return copies;
}

void ObservedRegion::record(const BufferRange& persistent, const std::vector<StoredValue>& stored, const Observed& what) {
  std::vector<BufferRange> read, made;
  for (const HostSlot& slot : inputs_) read.push_back(slot.device_range());
  for (const HostSlot& slot : outputs_) made.push_back(slot.device_range());
  for (const auto& [from, to] : copies_of(inputs_, true)) list_.copy(from, to);
  std::vector<Dispatch> dispatches = dispatches_on(compiled_, persistent, read, made, arena_);
  if (dispatches.size() != compiled_->plan().steps.size()) throw Error("a program that is observed has steps of no dispatch");
  const std::vector<std::vector<size_t>> complete = copies_by_step(stored, what);
  if (what.steps) {
    dispatches.resize(*what.steps);
    if (is_injected("race")) swap_racing(dispatches, *compiled_);
  }
  for (size_t i = 0; i < dispatches.size(); ++i) {
    list_.dispatch(std::move(dispatches[i]));
    for (const size_t k : complete[i]) {
      const StoredValue& value = stored[copied_[k]];
      BufferRange source = range_of(value.place);
      source.offset -= phase_of(value);
      source.bytes = copied_bytes(value);
      list_.copy(source, observed_[k].device_range());
    }
  }
  for (const auto& [from, to] : copies_of(observed_, false)) list_.copy(from, to);
  for (const auto& [from, to] : copies_of(outputs_, false)) list_.copy(from, to);
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
  if (place.place == Place::output) {
    BufferRange range = outputs_[place.index].device_range();
    range.offset += place.byte_offset;
    return range;
  }
  if (place.place != Place::temporary) throw Error("a value that is stored lies neither in the arena nor in an output");
  return {arena_, place.byte_offset, 0};
}

void ObservedRegion::describe(const ProgramGraph& graph, const std::vector<StoredValue>& stored) {
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
