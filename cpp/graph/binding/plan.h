// Binding: all sizes known, a program's steps, their order and where every tensor lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/binding/stored_value.h"
#include "graph/binding/weights.h"
#include "graph/description/shape_inference.h"
#include "graph/passes/index_checks.h"
#include "graph/passes/input_checks.h"
#include "graph/passes/program_graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// One choice of input shapes, with the elements of those inputs that shapes depend on.
struct BindInputs {
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;
};

// The steps that a node was lowered to last, and the facts that they were made for: another binding mostly leaves many nodes as they are.
struct NodeMemo {
  KernelMemo kernels;
  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<std::optional<HostTensor>> hosts;  // inputs' elements that differ from binding to binding
  std::vector<uint64_t> input_phases;
  LoweredNode lowered;
};

// The last binding's findings, so that the next one only does what differs.
struct BindMemo {
  std::vector<NodeMemo> nodes;
  std::optional<ShapeInference> shapes;  // none: no binding came to its end
};

struct BoundPlan {
  Plan plan;
  uint64_t lower_bound_bytes = 0;  // the least that an arena can have
  uint32_t wave_count = 0;
  std::vector<std::optional<HostTensor>> output_hosts;  // by output of the graph: its elements, where they are known
  std::vector<CheckedInputs> checked;                   // by check of the graph
  std::vector<std::string> kernels;                     // by row of the program's report: names of the kernels that run it
  std::vector<std::string> choices;                     // likewise: measured variants that it runs, or cannot run
  std::vector<std::string> spills;                      // likewise: variants whose kernels spill, and what runs in place of them
  std::vector<IndexCheck> index_checks;
  std::vector<StoredValue> stored;  // where they were asked for
};

// Plans one binding. `memo` is kept from one binding of this graph to the next; it changes nothing of the plan. `list_values`: the values
// that its steps store are listed. Throws GraphError where a shape rule is broken, UnsupportedError that lists everything that a lowering
// refuses.
BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    BindMemo* memo = nullptr, bool list_values = false);

}  // namespace pumice
