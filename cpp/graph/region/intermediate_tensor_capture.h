// Runs the normal plan of a region and copies every tensor that its kernels store.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dispatch/command_list.h"
#include "dispatch/staging_slot.h"
#include "graph/binding/plan.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// A tensor that a kernel stored. `bytes` points to its first element.
struct CapturedTensor {
  std::string name;                  // name of the value in the graph
  std::string node, kernel;          // last node and kernel that stored it
  std::vector<std::string> reads;    // names of the values that the node reads
  TensorDesc desc;                   // description with the strides of the program
  int64_t additions = 0;             // longest chain of additions in the sums of the node, see LoweredNode
  const std::byte* bytes = nullptr;  // null if not copied
};

// Selects which tensors are copied, and when.
struct TensorCaptureOptions {
  const std::set<std::string>* value_names = nullptr;  // names of the values to copy; null: all values
  // If set: stops after this many steps, with the usual order and barriers, and copies the values that exist then. Otherwise runs all steps
  // and copies each tensor after the step that completes it.
  std::optional<size_t> steps;
};

// Uses the same plan, arena layout and kernels as normal runs; the copies between steps add barriers. Fills the arena and the outputs with
// kFillPattern first. Runs once. Not thread-safe.
class IntermediateTensorCapture {
 public:
  // `compiled`, `stored`: results of bind_plan() with list_values.
  IntermediateTensorCapture(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs,
                            const ProgramGraph& graph, const std::vector<StoredValue>& stored, const TensorCaptureOptions& capture_options);
  const TensorDesc& input_desc(size_t i) const { return *compiled_->inputs()[i].desc; }
  void write_input(size_t i, const std::byte* source) { copy_to_mapped(inputs_[i].bytes, {source, input_desc(i).element_bytes()}); }
  Submission start(const InterruptCallback& interrupted = {});
  // The copied tensors; valid after the run has finished, as long as this object exists.
  const std::vector<CapturedTensor>& tensors() const { return tensors_; }
  // Description and elements of an output of the region (packed, row-major); valid like tensors().
  const TensorDesc& output_desc(size_t j) const { return *compiled_->outputs()[j].desc; }
  const std::byte* output(size_t j) const { return outputs_[j].bytes; }

 private:
  BufferRange get_range(const PlannedOperand& operand) const;
  void make_slots(const std::vector<StoredValue>& stored);
  std::vector<std::vector<size_t>> group_copies_by_step(const std::vector<StoredValue>& stored,
                                                        const TensorCaptureOptions& capture_options);
  bool is_available(const StoredValue& value, size_t steps) const;
  void record(const BufferRange& persistent, const std::vector<StoredValue>& stored, const TensorCaptureOptions& capture_options);
  void describe_tensors(const ProgramGraph& graph, const std::vector<StoredValue>& stored);

  std::shared_ptr<CompiledOperator> compiled_;
  std::vector<size_t> copied_;                            // indices of the stored values that are copied
  std::vector<StagingSlot> inputs_, outputs_, observed_;  // observed_: destinations of the copies, indexed like copied_
  std::shared_ptr<Buffer> arena_;
  CommandList list_;
  std::vector<CapturedTensor> tensors_;
};

}  // namespace pumice
