// Binding: plans a program for known sizes: its steps, their order, and the memory of every tensor.
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

// A binding's input shapes, and the elements of inputs that shapes depend on.
struct BindInputs {
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;
};

// The last lowering of a node and the facts it depended on. Another binding usually leaves many nodes unchanged.
struct NodeMemo {
  KernelMemo kernels;
  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<std::optional<HostTensor>> hosts;  // input elements that vary between bindings
  std::vector<uint64_t> input_misalignments;
  LoweredNode lowered;
};

// Cached results of the last binding, so that the next one redoes only what changed.
struct BindMemo {
  std::vector<NodeMemo> nodes;
  std::optional<ShapeInference> shapes;  // none if the last binding failed
};

struct BoundPlan {
  Plan plan;
  uint64_t lower_bound_bytes = 0;  // no arena can be smaller
  uint32_t wave_count = 0;
  std::vector<std::optional<HostTensor>> output_hosts;  // elements of each output of the graph, if known
  std::vector<CheckedInputs> checked_inputs;            // one entry per check of the graph
  std::vector<std::string> kernels;                     // one entry per row of the program's report: names of the kernels that run the node
  std::vector<std::string> choices;                     // likewise: measured variants that the node runs, or cannot run
  std::vector<std::string> spills;                      // likewise: variants whose kernels spill, and their replacements
  std::vector<IndexCheck> index_checks;
  std::vector<StoredValue> stored;  // values that the steps store, if requested
};

// Plans one binding. `memo` is kept between bindings of this graph and does not affect the result. `list_values`: also list the values that
// steps store. Throws GraphError if a shape rule is broken, UnsupportedError listing everything that the lowerings reject.
BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    BindMemo* memo = nullptr, bool list_values = false);

}  // namespace pumice
