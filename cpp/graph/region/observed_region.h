// Runs a region's normal plan and copies every tensor that its kernels store.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dispatch/command_list.h"
#include "dispatch/host_slot.h"
#include "graph/binding/plan.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// A tensor stored by a kernel. `bytes` points to its first element.
struct ObservedTensor {
  std::string name;                  // name of the graph's value
  std::string node, kernel;          // the node and kernel that stored it last
  std::vector<std::string> reads;    // values that the node's steps read
  TensorDesc desc;                   // description with the program's strides
  int64_t additions = 0;             // additions of the node, see LoweredNode
  const std::byte* bytes = nullptr;  // null if not copied
};

// Selects which tensors are copied, and when.
struct ObserveOptions {
  const std::set<std::string>* value_names = nullptr;  // names of the values to copy; null: all
  // Stops after this many steps, with the usual order and barriers, and copies the values present then. None: runs all steps and copies
  // each tensor after the step that completes it.
  std::optional<size_t> steps;
};

// The plan, arena and kernels are the same as in normal runs; the copies between steps add barriers. Fills the arena and the outputs with
// kFillPattern first. Runs once. Not thread-safe.
class ObservedRegion {
 public:
  // `compiled`, `stored`: from bind_plan() with list_values.
  ObservedRegion(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs, const ProgramGraph& graph,
                 const std::vector<StoredValue>& stored, const ObserveOptions& observe_options);
  const TensorDesc& input_desc(size_t i) const { return *compiled_->inputs()[i].desc; }
  void write_input(size_t i, const std::byte* source) { copy_in(inputs_[i].bytes, {source, input_desc(i).element_bytes()}); }
  Submission start(const Interrupted& interrupted = {});
  // Valid when the run has finished, for the lifetime of this object.
  const std::vector<ObservedTensor>& tensors() const { return tensors_; }
  // Elements of an output of the region, packed row-major; same lifetime.
  const TensorDesc& output_desc(size_t j) const { return *compiled_->outputs()[j].desc; }
  const std::byte* output(size_t j) const { return outputs_[j].bytes; }

 private:
  BufferRange range_of(const PlannedOperand& place) const;
  void make_slots(const std::vector<StoredValue>& stored);
  std::vector<std::vector<size_t>> copies_by_step(const std::vector<StoredValue>& stored, const ObserveOptions& observe_options);
  bool is_available(const StoredValue& value, size_t steps) const;
  void record(const BufferRange& persistent, const std::vector<StoredValue>& stored, const ObserveOptions& observe_options);
  void describe_tensors(const ProgramGraph& graph, const std::vector<StoredValue>& stored);

  std::shared_ptr<CompiledOperator> compiled_;
  std::vector<size_t> copied_;                         // indices of the stored values to copy
  std::vector<HostSlot> inputs_, outputs_, observed_;  // observed_ is indexed like copied_
  std::shared_ptr<Buffer> arena_;
  CommandList list_;
  std::vector<ObservedTensor> tensors_;
};

}  // namespace pumice
