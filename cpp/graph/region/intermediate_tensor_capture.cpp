#include "graph/region/intermediate_tensor_capture.h"

#include <map>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/injected_fault.h"
#include "core/rounding.h"
#include "graph/region/bound_program.h"

namespace pumice {
namespace {

constexpr uint64_t kWord = 4;  // copies are done in whole 32-bit words

// Returns the byte offset of a tensor in the first 32-bit word that contains part of it.
uint64_t get_word_offset(const StoredValue& value) {
  return value.location.byte_offset % kWord;
}

uint64_t get_copy_bytes(const StoredValue& value) {
  return round_up(get_word_offset(value) + value.desc.bytes(), kWord);
}

}  // namespace

IntermediateTensorCapture::IntermediateTensorCapture(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                                                     size_t inputs, const ProgramGraph& graph, const std::vector<StoredValue>& stored,
                                                     const TensorCaptureOptions& capture_options)
    : compiled_(compiled), list_(compiled->context()) {
  if (const size_t num_steps = compiled->plan().steps.size();
      capture_options.steps && (*capture_options.steps < 1 || *capture_options.steps > num_steps))
    throw BindingError("K10", "steps", compiled->name(), "a number of steps from 1 to " + std::to_string(num_steps),
                       std::to_string(*capture_options.steps));
  for (size_t k = 0; k < stored.size(); ++k)
    if ((!capture_options.value_names || capture_options.value_names->contains(graph.value(stored[k].value).name)) &&
        (!capture_options.steps || is_available(stored[k], *capture_options.steps)))
      copied_.push_back(k);
  std::vector<uint64_t> input_bytes;
  for (size_t i = 0; i < inputs; ++i) input_bytes.push_back(input_desc(i).bytes());
  inputs_ = make_staging_slots(compiled->context(), input_bytes, Heap::upload);
  make_slots(stored);
  if (const uint64_t bytes = compiled->plan().temporary_bytes) arena_ = Buffer::create(compiled->context(), bytes);
  record(persistent, stored, capture_options);
  describe_tensors(graph, stored);
}

Submission IntermediateTensorCapture::start(const InterruptCallback& interrupted) {
  fill(outputs_, kFillPattern, interrupted);
  fill(observed_, kFillPattern, interrupted);
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / kWord * kWord}, kFillPattern, interrupted);
  return list_.exec();
}

// Returns whether a value is complete, and not yet overwritten, after `steps` steps.
bool IntermediateTensorCapture::is_available(const StoredValue& value, size_t steps) const {
  const PlannedOperand& location = value.location;
  const auto overlaps = [&](const PlannedOperand& written) {
    return written.memory == location.memory && written.index == location.index &&
           written.byte_offset < location.byte_offset + value.desc.bytes() && location.byte_offset < written.byte_offset + written.bytes;
  };
  if (value.last_write >= steps) return false;
  for (size_t i = value.last_write + 1; i < steps; ++i) {
    const PlannedStep& step = compiled_->plan().steps[i];
    for (size_t k = 0; k < step.operands.size(); ++k)
      if (step.kernel->interface().bindings[k].access != ResourceAccess::read && overlaps(step.operands[k])) return false;
  }
  return true;
}

// Returns, for each step, the tensors to copy after it, as indices into copied_.
std::vector<std::vector<size_t>> IntermediateTensorCapture::group_copies_by_step(const std::vector<StoredValue>& stored,
                                                                                 const TensorCaptureOptions& capture_options) {
  std::vector<std::vector<size_t>> copies(compiled_->plan().steps.size());
  for (size_t k = 0; k < copied_.size(); ++k)
    copies[capture_options.steps ? *capture_options.steps - 1 : stored[copied_[k]].last_write].push_back(k);
  return copies;
}

void IntermediateTensorCapture::record(const BufferRange& persistent, const std::vector<StoredValue>& stored,
                                       const TensorCaptureOptions& capture_options) {
  std::vector<BufferRange> read, written_ranges;
  for (const StagingSlot& slot : inputs_) read.push_back(slot.device_range());
  for (const StagingSlot& slot : outputs_) written_ranges.push_back(slot.device_range());
  for (const auto& [from, to] : collect_copies(inputs_, true)) list_.copy(from, to);
  std::vector<Dispatch> dispatches = make_dispatches(compiled_, persistent, read, written_ranges, arena_);
  if (dispatches.size() != compiled_->plan().steps.size()) throw Error("an observed program has steps without a dispatch");
  const std::vector<std::vector<size_t>> last_write = group_copies_by_step(stored, capture_options);
  if (capture_options.steps) {
    dispatches.resize(*capture_options.steps);
    if (is_fault_injected("race")) swap_dependent_dispatches(dispatches, *compiled_);
  }
  for (size_t i = 0; i < dispatches.size(); ++i) {
    list_.dispatch(std::move(dispatches[i]));
    for (const size_t k : last_write[i]) {
      const StoredValue& value = stored[copied_[k]];
      BufferRange source = get_range(value.location);
      source.offset -= get_word_offset(value);
      source.bytes = get_copy_bytes(value);
      list_.copy(source, observed_[k].device_range());
    }
  }
  for (const auto& [from, to] : collect_copies(observed_, false)) list_.copy(from, to);
  for (const auto& [from, to] : collect_copies(outputs_, false)) list_.copy(from, to);
  list_.commit();
}

void IntermediateTensorCapture::make_slots(const std::vector<StoredValue>& stored) {
  std::vector<uint64_t> output_bytes, observed_bytes;
  for (const TensorSlot& output : compiled_->outputs()) output_bytes.push_back(output.desc->bytes());
  for (const size_t k : copied_) observed_bytes.push_back(get_copy_bytes(stored[k]));
  outputs_ = make_staging_slots(compiled_->context(), output_bytes, Heap::readback);
  observed_ = make_staging_slots(compiled_->context(), observed_bytes, Heap::readback);
}

BufferRange IntermediateTensorCapture::get_range(const PlannedOperand& operand) const {
  if (operand.memory == MemoryKind::output) {
    BufferRange range = outputs_[operand.index].device_range();
    range.offset += operand.byte_offset;
    return range;
  }
  if (operand.memory != MemoryKind::temporary) throw Error("a stored value is neither in the arena nor in an output");
  return {arena_, operand.byte_offset, 0};
}

void IntermediateTensorCapture::describe_tensors(const ProgramGraph& graph, const std::vector<StoredValue>& stored) {
  std::vector<const PlannedStep*> last(graph.values.size(), nullptr);  // for each value, the last step that writes it
  std::map<std::string_view, std::set<std::string>> reads;             // node name -> names of the values that it reads
  for (const PlannedStep& step : compiled_->plan().steps)
    for (size_t k = 0; k < step.operands.size(); ++k) {
      if (step.operands[k].value < 0) continue;
      const auto value = static_cast<size_t>(step.operands[k].value);
      const ResourceAccess access = step.kernel->interface().bindings[k].access;
      if (access != ResourceAccess::read) last[value] = &step;
      if (access != ResourceAccess::write) reads[step.label].insert(graph.values[value].name);
    }
  for (size_t k = 0; k < stored.size(); ++k) {
    const PlannedStep& step = *last[static_cast<size_t>(stored[k].value)];
    const auto& read = reads[step.label];
    tensors_.push_back(
        {graph.value(stored[k].value).name, step.label, step.kernel->name(), {read.begin(), read.end()}, stored[k].desc, step.additions});
  }
  for (size_t k = 0; k < copied_.size(); ++k) tensors_[copied_[k]].bytes = observed_[k].bytes + get_word_offset(stored[copied_[k]]);
}

}  // namespace pumice
