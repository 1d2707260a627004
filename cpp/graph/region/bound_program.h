// A program bound to specific input shapes: its compiled operator, and a pool of recordings with their buffers.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dispatch/command_list.h"
#include "dispatch/staging_slot.h"
#include "dispatch/staging_slot_transfer.h"
#include "graph/binding/plan.h"
#include "graph/passes/program_graph.h"
#include "graph/region/execution_lease.h"
#include "graph/region/execution_lease_pool.h"
#include "graph/region/plan_report.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

class CommandListLease;

// Thread-safe. Keeps the weights of the program alive, so that leases may outlive it.
class BoundProgram {
 public:
  BoundProgram(BindInputs key, std::shared_ptr<CompiledOperator> compiled, BufferRange persistent, size_t inputs, const BoundPlan& bound);
  ~BoundProgram();

  const BindInputs& key() const { return key_; }
  const std::shared_ptr<CompiledOperator>& compiled() const { return compiled_; }
  const BufferRange& persistent() const { return persistent_; }
  // Returns the elements of output j if they were known at binding.
  const std::optional<HostTensor>& output_host(size_t j) const { return output_hosts_[j]; }
  const std::vector<CheckedInputs>& checked_inputs() const { return checked_inputs_; }  // one entry per InputCheck of the graph
  // Index checks; their results are the last outputs.
  const std::vector<IndexCheck>& index_checks() const { return index_checks_; }
  // Leases a free recording. If all are leased, waits, or throws StateError if `wait` is false.
  std::shared_ptr<ExecutionLease> acquire_lease(bool wait, std::optional<double> timeout_seconds, const std::function<void()>& interrupted);
  // Creates a recording that does not belong to the pool.
  std::shared_ptr<CommandListLease> make_lease(const RecordingOptions& options) const;
  std::vector<StepReport> report_steps(const ProgramGraph& graph) const;
  ArenaReport report_arena(const ProgramGraph& graph) const;

 private:
  BindInputs key_;
  std::shared_ptr<CompiledOperator> compiled_;
  BufferRange persistent_;
  size_t inputs_;  // number of graph inputs; later slots of the operator are owned
  uint64_t lower_bound_bytes_;
  uint32_t wave_count_;
  std::vector<std::optional<HostTensor>> output_hosts_;
  std::vector<CheckedInputs> checked_inputs_;
  std::vector<IndexCheck> index_checks_;
  ExecutionLeasePool pool_;
};

// A CommandList with its own buffers. If the default heap is host-visible, they are allocated there. Otherwise the list copies to and from
// device memory. Large slots are copied outside the list, except when times are measured, which must include all copies.
class CommandListLease : public ExecutionLease {
 public:
  CommandListLease(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs,
                   std::vector<IndexCheck> index_checks, const RecordingOptions& options = {});
  const TensorDesc& input_desc(size_t i) const override { return *compiled_->inputs()[i].desc; }
  const TensorDesc& output_desc(size_t j) const override { return *compiled_->outputs()[j].desc; }
  std::byte* input(size_t i) override { return inputs_[i].bytes; }
  void fill_memory(uint32_t word, const InterruptCallback& interrupted = {}) override;
  void write_input(size_t i, const std::byte* source, bool source_is_stable = false) override;
  void read_output(size_t j, std::byte* target, const InterruptCallback& interrupted = {}) const override;
  // If indices are checked, start() returns when the work has finished. Throws IndexRangeError, TimeoutError.
  Submission start(const RunLimits& limits, std::span<std::byte* const> targets = {}) override;
  uint64_t last_submission() const override;
  RunReport report() const override { return {1, list_.recording()->dispatch_count(), 0, 0, {}}; }
  std::optional<double> device_seconds() const override { return last_ ? last_->device_seconds() : std::nullopt; }
  const CommandList& list() const { return list_; }

 private:
  const std::byte* output(size_t j) const override { return outputs_[j].bytes; }

  std::shared_ptr<CompiledOperator> compiled_;
  std::vector<StagingSlot> inputs_, outputs_;
  std::vector<std::unique_ptr<StagingSlotTransfer>> uploads_, downloads_;  // indexed by slot; null if the command list copies the slot
  std::vector<IndexCheck> index_checks_;                                   // see index_checks()
  std::shared_ptr<Buffer> arena_;
  CommandList list_;
  std::optional<Submission> last_;
};

// Records the operator of a program. `arena` must be large enough for its temporary tensors.
void record_operator(CommandList& list, const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                     std::span<const BufferRange> inputs, std::span<const BufferRange> outputs, const std::shared_ptr<Buffer>& arena);

// Returns the dispatches of the operator of a program, to be recorded together with others.
std::vector<Dispatch> make_dispatches(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                                      std::span<const BufferRange> inputs, std::span<const BufferRange> outputs,
                                      const std::shared_ptr<Buffer>& arena);

// For fault injection ("race"): swaps the last two consecutive dispatches where the second reads the output of the first. `dispatches`: the
// first dispatches of the plan.
void swap_dependent_dispatches(std::vector<Dispatch>& dispatches, const CompiledOperator& compiled);

}  // namespace pumice
