// The graph that a program runs: folded, fused and retyped by passes. Independent of the shapes of the data.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"
#include "graph/passes/program_options.h"
#include "operators/table/lowering.h"

namespace pumice {

// One row of a program report: the kernel and precision of a node, and the reasons.
struct ReportRow {
  std::string node, op, kernel = {}, note = {};  // note: "fused into conv1", "view", "folded" or ""
  std::optional<Fusion> fusion = {};             // the fusion that merged this node into another
  bool added = false;                            // whether a pass added the node
  std::optional<DType> dtype = {};               // dtype of its first output
  std::string fp32 = {};                         // why the node computes in float32 in a 16-bit program; "": it does not
  std::string precision = {};                    // storage type of float elements on this device, else the dtype
  std::string scales = {};                       // handling of float32 scales on devices with fp16 cooperative matrices; "": not applicable
  bool fp32_requested = false;                   // whether float32 was requested for the node or a node fused into it
};

struct ProgramNode : GraphNode {
  ProgramNode(GraphNode node, uint32_t row_index) : GraphNode(std::move(node)), report(row_index) {}

  std::string epilogue = "x";   // GLSL expression of x, and of residual if input kResidualInput is present
  bool exact_epilogue = false;  // whether it uses functions of float32 accuracy even for 16-bit results
  // Expression of a fused elementwise node, over elementwise_input_names(), or of an epilogue with a residual, over x and residual.
  std::optional<Expression> expression;
  int64_t concurrent = 1;  // see LowerContext
  bool has_residual = false;
  uint32_t report;             // index of its report row
  bool on_host = false;        // whether the host tries to evaluate it at binding
  bool host_required = false;  // whether it must run on the host, because shapes depend on it or the device cannot run it
  bool fp32 = false;           // whether it computes in float32 at any precision
  bool low_precision_factors =
      false;  // whether the factors of a float32 matmul have the float dtype of the program, in which its weights are packed
  // Parameters for splitting the constant weights of a float32 matmul into fp16 hi and lo; nullopt if not split.
  std::optional<SplitFp16Params> split_fp16;
  bool only_shape = false;  // whether only the shapes of its outputs are used
};

// Nodes of a graph without IF and WHILE that run in sequence, and their inputs and outputs.
struct Subgraph {
  std::string name;
  std::vector<size_t> nodes;             // node indices, in graph order
  std::vector<ValueId> inputs, outputs;  // values of the graph
  std::vector<bool> host_outputs;        // for each output: whether the host computes it if possible
  std::string prefix = {};               // prefix of node names in reports
  // For each input and output: whether another region, branch or loop body writes or reads it. Empty: none.
  std::vector<bool> boundary_inputs = {}, boundary_outputs = {};
};
Subgraph make_whole_subgraph(const Graph& graph);

// An input that the host checks on every call: indices, or a list such as axes or sizes. See input_checks.h.
struct InputCheck {
  GraphNode node;                // the check node, or the node with the indices, named as in reports
  size_t list = 0;               // index of the input with the list or indices
  std::vector<GraphNode> chain;  // nodes that compute this input, in execution order
  std::vector<size_t> inputs;    // indices of the graph inputs that the chain reads
};

struct ProgramGraph {
  // Copies a subgraph of a finished graph. An output is named after its value; outputs of the whole graph keep their names.
  ProgramGraph(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options);

  GraphValue& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const GraphValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  std::optional<Shape> known_shape(ValueId id) const { return id != kAbsent && value(id).is_known() ? value(id).shape : std::nullopt; }
  // Returns the internal dtype of a constant or owned input: for floats the float dtype of the program, else its own dtype.
  DType stored_dtype(const GraphValue& value) const {
    return !is_operator_float(value.dtype) ? value.dtype : value.fp32 ? DType::float32 : float_dtype;
  }
  DType float_dtype_of(const ProgramNode& node) const { return node.fp32 && !node.low_precision_factors ? DType::float32 : float_dtype; }
  ValueId add_value(GraphValue new_value);
  // Records in the report that a node was fused into another.
  void mark_fused(uint32_t row, uint32_t into, Fusion fusion) {
    report[row].note = "fused into " + report[into].node;
    report[row].fusion = fusion;
    report[into].fp32_requested = report[into].fp32_requested || report[row].fp32_requested;
  }
  // Removes the nodes that are marked in `removed`, which is indexed by node.
  void erase_nodes(const std::vector<bool>& removed);
  // Returns the number of uses of each value by nodes and outputs.
  std::vector<uint32_t> count_uses() const;

  std::string name;
  DType float_dtype = DType::float32;  // dtype of internal floats
  bool deterministic = false;          // whether results must be bit-identical in every run
  std::shared_ptr<const MeasuredVariants> measured;
  // Kernel variants that were found to spill registers at earlier bindings; never null.
  std::shared_ptr<SpilledVariants> spilled = std::make_shared<SpilledVariants>();
  std::vector<GraphValue> values;
  std::vector<ProgramNode> nodes;  // nodes in execution order
  std::vector<ValueId> inputs;
  std::vector<std::pair<std::string, ValueId>> outputs;
  size_t index_checks = 0;        // number of index check outputs at the end; see index_checks.h
  std::vector<ReportRow> report;  // one row per node of the graph, in order
  std::vector<bool>
      dynamic_inputs;  // for each input: whether its sizes may vary, because another region computes it or its sizes are assumed
  std::vector<bool> host_outputs;                       // for each output: see Subgraph; empty: none
  std::vector<bool> boundary_inputs, boundary_outputs;  // for each input and output: see Subgraph; empty: none
  std::vector<bool> shape_value_inputs;  // for each input: whether shapes depend on its elements, which are then part of the bind key
  std::vector<InputCheck> checks;        // checks at each call of elements that shapes do not depend on
};

// Whether the operator moves elements unchanged.
bool moves_elements_unchanged(const OperatorRow& row);

// Whether the host, not the device, reads the elements of the input.
bool is_host_input(const ProgramNode& node, size_t input);

}  // namespace pumice
