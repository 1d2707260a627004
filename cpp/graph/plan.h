// Binding: all sizes known, a program's steps, their order and where every tensor lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/program_graph.h"
#include "graph/weights.h"
#include "operators/compiled_operator.h"

namespace pumice {

// One choice of input shapes, with the elements of those inputs that shapes depend on.
struct BindInputs {
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;
};

// What a node was lowered to last and for what: another binding mostly leaves many nodes as they are.
struct NodeMemo {
  KernelMemo kernels;
  bool is_kept = false;
  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<uint64_t> input_phases;
  std::vector<Step> steps;
  std::vector<uint64_t> temporaries;
  std::vector<std::vector<std::byte>> host_blocks;
};

struct BoundPlan {
  Plan plan;
  uint64_t lower_bound_bytes = 0;  // of the arena
  uint32_t wave_count = 0;
  std::vector<std::optional<HostTensor>> output_hosts;  // by output of the graph: its elements, where they are known
  std::vector<std::string> kernels;                     // by row of the program's report: names of the kernels that run it
};

// `memos`: by node, kept from one binding to the next. Throws GraphError where a shape rule is broken, UnsupportedError with everything
// that a lowering refuses.
BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    std::vector<NodeMemo>* memos = nullptr);

}  // namespace pumice
