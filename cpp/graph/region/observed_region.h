// A run of a region as it ships, with a copy of every tensor that its kernels store.
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

// A tensor as a kernel has stored it. The first of its bytes is that of its first element.
struct ObservedTensor {
  std::string name;                  // the graph's value
  std::string node, kernel;          // that stored the last of it
  std::vector<std::string> reads;    // the values that the node's steps read
  TensorDesc desc;                   // strided as the program keeps it
  int64_t additions = 0;             // of the node, see LoweredNode
  const std::byte* bytes = nullptr;  // null: it was not to be copied
};

// What is observed of a run.
struct Observed {
  const std::set<std::string>* wanted = nullptr;  // the names of the values that are copied; null: all are
  // The run ends after so many steps, in the order and with the barriers of any other run, and is followed by the copies of what is there
  // then; none: all steps run, with a copy after each step that completes a tensor.
  std::optional<size_t> steps;
};

// The plan, the arena and the kernels are those of every other run; copies between steps add barriers. The arena and the outputs are filled
// with kFilled before it. Runs once. Not thread-safe.
class ObservedRegion {
 public:
  // `compiled`, `stored`: of bind_plan(), with its values.
  ObservedRegion(const std::shared_ptr<CompiledOperator>& compiled, const BufferRange& persistent, size_t inputs, const ProgramGraph& graph,
                 const std::vector<StoredValue>& stored, const Observed& what);
  const TensorDesc& input_desc(size_t i) const { return *compiled_->inputs()[i].desc; }
  void write_input(size_t i, const std::byte* source) { copy_in(inputs_[i].bytes, {source, input_desc(i).element_bytes()}); }
  Submission start(const Interrupted& interrupted = {});
  // The tensors are filled when the run has finished, and live as long as this.
  const std::vector<ObservedTensor>& tensors() const { return tensors_; }
  // The elements of an output of the region, packed row-major, likewise.
  const TensorDesc& output_desc(size_t j) const { return *compiled_->outputs()[j].desc; }
  const std::byte* output(size_t j) const { return outputs_[j].bytes; }

 private:
  BufferRange range_of(const PlannedOperand& place) const;
  void make_slots(const std::vector<StoredValue>& stored);
  std::vector<std::vector<size_t>> copies_by_step(const std::vector<StoredValue>& stored, const Observed& what);
  bool is_there(const StoredValue& value, size_t steps) const;
  void record(const BufferRange& persistent, const std::vector<StoredValue>& stored, const Observed& what);
  void describe(const ProgramGraph& graph, const std::vector<StoredValue>& stored);

  std::shared_ptr<CompiledOperator> compiled_;
  std::vector<size_t> copied_;                         // of the stored values, those that are copied
  std::vector<HostSlot> inputs_, outputs_, observed_;  // observed_: by number in copied_
  std::shared_ptr<Buffer> arena_;
  CommandList list_;
  std::vector<ObservedTensor> tensors_;
};

}  // namespace pumice
