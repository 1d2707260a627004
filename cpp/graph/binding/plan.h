// Plans the execution of a program for known shapes: its dispatches, their order, and the memory of each tensor.
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

// Shapes of the inputs, and elements of the inputs that shapes depend on.
struct BindInputs {
  std::vector<Shape> shapes;
  std::vector<std::optional<HostTensor>> values;
};

// The last lowering of a node and everything it depended on. Most nodes do not change between bindings, so their lowering is reused.
struct CachedLowering {
  KernelCache kernels;
  std::vector<std::optional<TensorDesc>> inputs, outputs;
  std::vector<std::optional<HostTensor>> hosts;  // elements of inputs that may differ between bindings
  std::vector<uint64_t> input_misalignments;
  LoweredNode lowered;
};

// Results of the last binding, so that the next binding recomputes only nodes that changed.
struct BindCache {
  std::vector<CachedLowering> nodes;
  std::optional<ShapeInference> shapes;  // nullopt if the last binding failed
};

struct BoundPlan {
  ExecutionPlan plan;
  uint64_t lower_bound_bytes = 0;  // lower bound of the arena size
  uint32_t wave_count = 0;
  std::vector<std::optional<HostTensor>> output_hosts;  // for each graph output: its elements, if known at binding
  std::vector<CheckedInputs> checked_inputs;            // one entry per InputCheck of the graph
  std::vector<std::string> kernels;                     // for each row of the report: names of the kernels that run the node
  std::vector<std::string> choices;                     // for each row of the report: measured kernel variants of the node
  std::vector<std::string> spills;                      // for each row of the report: variants that spill registers, and their replacements
  std::vector<IndexCheck> index_checks;
  std::vector<StoredValue> stored;  // values that kernels write to memory, if requested
};

// Plans the program for these inputs. `cache` is kept between calls for the same graph and does not affect the result. With `list_values`,
// also lists the values that kernels write to memory. Throws GraphError if a shape rule is violated, UnsupportedError listing everything
// that cannot be lowered.
BoundPlan bind_plan(const std::shared_ptr<Context>& context, const ProgramGraph& graph, const Weights& weights, const BindInputs& inputs,
                    BindCache* cache = nullptr, bool list_values = false);

}  // namespace pumice
