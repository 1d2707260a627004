#include "graph/region/bound_program.h"

#include <algorithm>

#include "core/error.h"
#include "core/injected_fault.h"
#include "dispatch/hazards.h"
#include "graph/binding/arena.h"

namespace pumice {
namespace {

// Returns an id that is unique for the memory kind and index of an operand.
uint64_t get_allocation_id(const PlannedOperand& operand) {
  return static_cast<uint64_t>(operand.memory) << 32 | operand.index;
}

void bind_operator(BindingTable& table, const CompiledOperator& compiled, const BufferRange& persistent,
                   std::span<const BufferRange> inputs, std::span<const BufferRange> outputs, const std::shared_ptr<Buffer>& arena) {
  Bindings bound_inputs(compiled.inputs().size());  // the slots after the inputs are owned and stay empty
  std::ranges::copy(inputs, bound_inputs.begin());
  table.bind_inputs(std::move(bound_inputs));
  table.bind_outputs({outputs.begin(), outputs.end()});
  if (persistent.buffer) table.bind_persistent(persistent);
  if (const uint64_t bytes = compiled.plan().temporary_bytes) table.bind_temporary(BufferRange{arena, 0, bytes});
}

// Creates a transfer for each large slot. The other slots are appended to `copied`; the command list copies them.
std::vector<std::unique_ptr<StagingSlotTransfer>> make_transfers(std::span<const StagingSlot> slots, bool to_device, bool enabled,
                                                                 std::vector<StagingSlot>& copied) {
  std::vector<std::unique_ptr<StagingSlotTransfer>> transfers(slots.size());
  for (size_t i = 0; i < slots.size(); ++i)
    if (enabled && StagingSlotTransfer::is_chunked_copy_worthwhile(slots[i]))
      transfers[i] = std::make_unique<StagingSlotTransfer>(slots[i], to_device);
    else
      copied.push_back(slots[i]);
  return transfers;
}

}  // namespace

void record_operator(CommandList& list, const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                     std::span<const BufferRange> inputs, std::span<const BufferRange> outputs, const std::shared_ptr<Buffer>& arena) {
  if (is_fault_injected("race")) {
    std::vector<Dispatch> dispatches = make_dispatches(compiled, persistent, inputs, outputs, arena);
    swap_dependent_dispatches(dispatches, *compiled);
    for (Dispatch& each : dispatches) list.dispatch(std::move(each));
    return;
  }
  BindingTable table(compiled);
  bind_operator(table, *compiled, persistent, inputs, outputs, arena);
  list.dispatch(compiled, table);
}

std::vector<Dispatch> make_dispatches(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                                      std::span<const BufferRange> inputs, std::span<const BufferRange> outputs,
                                      const std::shared_ptr<Buffer>& arena) {
  BindingTable table(compiled);
  bind_operator(table, *compiled, persistent, inputs, outputs, arena);
  return compiled->lower(table.get_ranges_of_complete_table());
}

void swap_dependent_dispatches(std::vector<Dispatch>& dispatches, const CompiledOperator& compiled) {
  const std::vector<PlannedStep>& steps = compiled.plan().steps;
  const auto reads_result = [&](const PlannedStep& step, const PlannedStep& before) {
    for (size_t k = 0; k < step.operands.size(); ++k)
      for (size_t j = 0; j < before.operands.size(); ++j) {
        const PlannedOperand &read = step.operands[k], &written = before.operands[j];
        if (read.memory != MemoryKind::temporary || written.memory != MemoryKind::temporary || read.byte_offset != written.byte_offset)
          continue;
        if (step.kernel->interface().bindings[k].access == ResourceAccess::read &&
            before.kernel->interface().bindings[j].access != ResourceAccess::read)
          return true;
      }
    return false;
  };
  for (size_t i = steps.size(); i-- > 1;) {
    if (!reads_result(steps[i], steps[i - 1])) continue;
    if (i < dispatches.size()) std::swap(dispatches[i - 1], dispatches[i]);
    return;
  }
}

CommandListLease::CommandListLease(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs,
                                   std::vector<IndexCheck> index_checks, const RecordingOptions& options)
    : compiled_(compiled), index_checks_(std::move(index_checks)), list_(compiled->context()) {
  std::vector<uint64_t> input_bytes, output_bytes;
  for (size_t i = 0; i < inputs; ++i) input_bytes.push_back(input_desc(i).bytes());
  for (size_t j = 0; j < compiled->outputs().size(); ++j) output_bytes.push_back(output_desc(j).bytes());
  inputs_ = make_staging_slots(compiled->context(), input_bytes, Heap::upload);
  outputs_ = make_staging_slots(compiled->context(), output_bytes, Heap::readback);
  std::vector<BufferRange> read, written_ranges;
  for (const StagingSlot& slot : inputs_) read.push_back(slot.device_range());
  for (const StagingSlot& slot : outputs_) written_ranges.push_back(slot.device_range());
  const bool is_timed = options.timestamps || options.total_time;
  std::vector<StagingSlot> copied_in, copied_out;
  uploads_ = make_transfers(inputs_, true, !is_timed, copied_in);
  downloads_ = make_transfers(outputs_, false, !is_timed, copied_out);
  for (const auto& [from, to] : collect_copies(copied_in, true)) list_.copy(from, to);
  if (const uint64_t bytes = compiled->plan().temporary_bytes) arena_ = Buffer::create(compiled->context(), bytes);
  record_operator(list_, compiled, persistent, read, written_ranges, arena_);
  for (const auto& [from, to] : collect_copies(copied_out, false)) list_.copy(from, to);
  list_.commit(options);
}

void CommandListLease::fill_memory(uint32_t word, const InterruptCallback& interrupted) {
  fill(inputs_, word, interrupted);
  fill(outputs_, word, interrupted);
  if (arena_) fill(BufferRange{arena_, 0, arena_->bytes() / sizeof(word) * sizeof(word)}, word, interrupted);
}

void CommandListLease::write_input(size_t i, const std::byte* source, bool source_is_stable) {
  const std::span bytes(source, input_desc(i).element_bytes());
  if (uploads_[i])
    uploads_[i]->write(bytes, source_is_stable);
  else
    copy_to_mapped(inputs_[i].bytes, bytes, inputs_[i].host->store_mode());
}

void CommandListLease::read_output(size_t j, std::byte* target, const InterruptCallback& interrupted) const {
  compiled_->context()->require_execution("output '" + compiled_->outputs()[j].name + "' of '" + compiled_->name() + "'");
  const std::span bytes(target, output_desc(j).element_bytes());
  if (downloads_[j])
    downloads_[j]->read(bytes, interrupted);
  else
    copy_from_mapped(output(j), bytes);
}

uint64_t CommandListLease::last_submission() const {
  uint64_t last = last_ ? last_->id() : 0;
  for (const auto* transfers : {&uploads_, &downloads_})
    for (const auto& transfer : *transfers)
      if (transfer) last = std::max(last, transfer->last_submission());
  return last;
}

Submission CommandListLease::start(const RunLimits& limits, std::span<std::byte* const> targets) {
  last_ = list_.exec();
  if (compiled_->context()->compile_only()) return *last_;  // nothing to read, and no index to check
  for (size_t j = 0; j < downloads_.size(); ++j) {
    std::byte* const target = j < targets.size() ? targets[j] : nullptr;
    if (downloads_[j]) downloads_[j]->begin_read({target, target ? output_desc(j).element_bytes() : 0});
  }
  if (index_checks_.empty()) return *last_;
  compiled_->context()->wait(last_->id(), limits.timeout_seconds, limits.interrupted);
  const size_t first = outputs_.size() - index_checks_.size();
  throw_failed_checks(index_checks_, [&](size_t k) { return outputs_[first + k].bytes; });
  return *last_;
}

BoundProgram::BoundProgram(BindInputs key, std::shared_ptr<CompiledOperator> compiled, BufferRange persistent, size_t inputs,
                           const BoundPlan& bound)
    : key_(std::move(key)),
      compiled_(std::move(compiled)),
      persistent_(std::move(persistent)),
      inputs_(inputs),
      lower_bound_bytes_(bound.lower_bound_bytes),
      wave_count_(bound.wave_count),
      output_hosts_(bound.output_hosts),
      checked_inputs_(bound.checked_inputs),
      index_checks_(bound.index_checks),
      pool_("'" + compiled_->name() + "' for these shapes") {}

BoundProgram::~BoundProgram() = default;

std::shared_ptr<ExecutionLease> BoundProgram::acquire_lease(bool wait, std::optional<double> timeout_seconds,
                                                            const std::function<void()>& interrupted) {
  const auto make = [this] { return std::make_shared<CommandListLease>(compiled_, persistent_, inputs_, index_checks_); };
  return pool_.acquire_lease(*compiled_->context(), make, wait, timeout_seconds, interrupted);
}

std::shared_ptr<CommandListLease> BoundProgram::make_lease(const RecordingOptions& options) const {
  return std::make_shared<CommandListLease>(compiled_, persistent_, inputs_, index_checks_, options);
}

std::vector<StepReport> BoundProgram::report_steps(const ProgramGraph& graph) const {
  std::vector<StepReport> steps;
  HazardTracker hazards;
  std::vector<MemoryAccess> accesses;
  for (const PlannedStep& step : compiled_->plan().steps) {
    StepReport& report = steps.emplace_back();
    report.label = step.label;
    report.kernel = step.kernel->name();
    report.wave = step.wave;
    report.groups = step.groups;
    report.folded = step.kernel->is_folded();
    report.additions = step.additions;
    report.choice = step.choice;
    accesses.clear();
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const PlannedOperand& operand = step.operands[k];
      const BindingInterface& binding = step.kernel->interface().bindings[k];
      const bool written = binding.access != ResourceAccess::read;
      const uint64_t end = operand.byte_offset + operand.bytes;
      report.operands.push_back({binding.name, operand.value >= 0 ? graph.value(operand.value).name : "", operand.memory, operand.index,
                                 operand.byte_offset, end, binding.access != ResourceAccess::write, written});
      if (operand.memory != MemoryKind::none && operand.bytes > 0)
        accesses.push_back({get_allocation_id(operand), operand.byte_offset, end, written, operand.interleaved});
    }
    report.barrier = hazards.add_accesses(accesses) != Barrier::none;
  }
  return steps;
}

ArenaReport BoundProgram::report_arena(const ProgramGraph& graph) const {
  ArenaReport report;
  report.arena_bytes = compiled_->plan().temporary_bytes;
  report.lower_bound_bytes = lower_bound_bytes_;
  report.persistent_bytes = compiled_->plan().initialization->persistent_bytes;
  report.waves = wave_count_;
  for (const StepReport& step : report_steps(graph)) {
    ++report.dispatches;
    report.barriers += step.barrier;
  }
  return report;
}

}  // namespace pumice
