// A program bound to one choice of input shapes: its compiled operator and a pool of recordings with their slots.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dispatch/command_list.h"
#include "dispatch/host_slot.h"
#include "dispatch/host_slot_transfer.h"
#include "graph/binding/plan.h"
#include "graph/passes/program_graph.h"
#include "graph/region/lease.h"
#include "graph/region/lease_pool.h"
#include "graph/region/plan_report.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

class RecordedLease;

// Thread-safe. Holds the program's weights, so that what is leased outlives the program.
class BoundProgram {
 public:
  BoundProgram(BindInputs key, std::shared_ptr<CompiledOperator> compiled, BufferRange persistent, size_t inputs, const BoundPlan& bound);
  ~BoundProgram();

  const BindInputs& key() const { return key_; }
  const std::shared_ptr<CompiledOperator>& compiled() const { return compiled_; }
  const BufferRange& persistent() const { return persistent_; }
  // The elements of output j, where binding knows them.
  const std::optional<HostTensor>& output_host(size_t j) const { return output_hosts_[j]; }
  const std::vector<CheckedInputs>& checked() const { return checked_; }  // by check of the graph
  // The checks of which the last outputs are the results.
  const std::vector<IndexCheck>& index_checks() const { return index_checks_; }
  // Leases a recording that nobody else has. Waits for one where all are leased; with `wait` false throws StateError.
  std::shared_ptr<Lease> lease(bool wait, std::optional<double> timeout_seconds, const std::function<void()>& interrupted);
  // Makes a recording for the caller alone.
  std::shared_ptr<RecordedLease> recorded(const RecordingOptions& options) const;
  std::vector<StepReport> steps(const ProgramGraph& graph) const;
  ArenaReport arena(const ProgramGraph& graph) const;

 private:
  BindInputs key_;
  std::shared_ptr<CompiledOperator> compiled_;
  BufferRange persistent_;
  size_t inputs_;  // the graph's inputs; the slots after them are owned
  uint64_t lower_bound_bytes_;
  uint32_t wave_count_;
  std::vector<std::optional<HostTensor>> output_hosts_;
  std::vector<CheckedInputs> checked_;
  std::vector<IndexCheck> index_checks_;
  LeasePool pool_;
};

// A CommandList on buffers of its own. Where the host sees the default heap the slots are there; else there are copies to and from it, in
// the list or, of what is large, around it: not where times are measured, which are those of all of it.
class RecordedLease : public Lease {
 public:
  RecordedLease(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs,
                std::vector<IndexCheck> index_checks, const RecordingOptions& options = {});
  const TensorDesc& input_desc(size_t i) const override { return *compiled_->inputs()[i].desc; }
  const TensorDesc& output_desc(size_t j) const override { return *compiled_->outputs()[j].desc; }
  std::byte* input(size_t i) override { return inputs_[i].bytes; }
  void fill_memory(uint32_t word, const Interrupted& interrupted = {}) override;
  void write_input(size_t i, const std::byte* source, bool stays = false) override;
  void read_output(size_t j, std::byte* target, const Interrupted& interrupted = {}) const override;
  // start() returns when the work has finished if indices are checked. Throws IndexRangeError, TimeoutError.
  Submission start(const RunLimits& limits, std::span<std::byte* const> targets = {}) override;
  uint64_t last_submission() const override;
  RunReport report() const override { return {1, list_.recording()->dispatch_count(), 0, 0, {}}; }
  std::optional<double> device_seconds() const override { return last_ ? last_->device_seconds() : std::nullopt; }
  const CommandList& list() const { return list_; }

 private:
  const std::byte* output(size_t j) const override { return outputs_[j].bytes; }

  std::shared_ptr<CompiledOperator> compiled_;
  std::vector<HostSlot> inputs_, outputs_;
  std::vector<std::unique_ptr<HostSlotTransfer>> uploads_, downloads_;  // by slot; none where its copy is in the list
  std::vector<IndexCheck> index_checks_;                                // the last outputs are their results
  std::shared_ptr<Buffer> arena_;
  CommandList list_;
  std::optional<Submission> last_;
};

// Records a program's operator. `arena`: at least its temporary bytes.
void dispatch_on(CommandList& list, const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                 std::span<const BufferRange> inputs, std::span<const BufferRange> outputs, const std::shared_ptr<Buffer>& arena);

// The dispatches of a program's operator, to be recorded with others.
std::vector<Dispatch> dispatches_on(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent,
                                    std::span<const BufferRange> inputs, std::span<const BufferRange> outputs,
                                    const std::shared_ptr<Buffer>& arena);

// The fault "race": the last dispatch that reads what the one before it writes comes before it. `dispatches`: the first ones of the plan.
void swap_racing(std::vector<Dispatch>& dispatches, const CompiledOperator& compiled);

}  // namespace pumice
