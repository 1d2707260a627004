// The graph that a program runs: folded, fused and retyped by passes, with weights placed; independent of data shapes.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"
#include "graph/passes/program_options.h"
#include "operators/table/lowering.h"

namespace pumice {

// One line of a program's report: the kernel and precision of a node, and the reasons.
struct ReportRow {
  std::string node, op, kernel = {}, note = {};  // note: "fused into conv1", "view", "folded", ""
  std::optional<Fusion> fusion = {};             // the fusion that merged the node into another
  bool added = false;                            // added by a pass: not a node of the graph
  std::optional<DType> dtype = {};               // dtype of its first output
  std::string fp32 = {};                         // why the node computes in float32 in a 16-bit program; "": it does not
  std::string precision = {};                    // storage mode of float elements on this device, else the dtype
  std::string scales = {};      // how float32 scales are handled on devices with fp16 cooperative matrices; "": not applicable
  bool fp32_requested = false;  // float32 requested for the node or one fused into it
};

struct ProgramNode : GraphNode {
  ProgramNode(GraphNode node, uint32_t row_index) : GraphNode(std::move(node)), report(row_index) {}

  std::string epilogue = "x";   // GLSL over x, and over residual if input kResidualInput is present
  bool exact_epilogue = false;  // uses float32-accurate functions even for 16-bit results
  // Expression of a fused map, over elementwise_input_names(), or of an epilogue with a residual, over x and residual.
  std::optional<Expression> expression;
  int64_t concurrent = 1;  // see LowerContext
  bool has_residual = false;
  uint32_t report;                     // index of its report row
  bool on_host = false;                // whether binding tries to evaluate it on the host
  bool host_required = false;          // must run on the host, because shapes depend on it or the device cannot run it
  bool fp32 = false;                   // always computes in float32
  bool low_precision_factors = false;  // the factors of a wide node have the program's float dtype, and its weights are packed in it
  // How the constant factor of a float32 node is split into fp16 hi and lo; none if not split.
  std::optional<SplitFp16Params> split_fp16;
  bool only_shape = false;  // only the shapes of its outputs are used
};

// Nodes of a graph that run in sequence, without IF and WHILE, and their interface to the rest.
struct Subgraph {
  std::string name;
  std::vector<size_t> nodes;             // node indices, in graph order
  std::vector<ValueId> inputs, outputs;  // values of the graph
  std::vector<bool> host_outputs;        // for each output: whether the host computes it if possible
  std::string prefix = {};               // prefix of the nodes' names in reports
  // For each input and output: whether it is exchanged with another part, branch or body. Empty: none is.
  std::vector<bool> boundary_inputs = {}, boundary_outputs = {};
};
Subgraph as_subgraph(const Graph& graph);

// A list or indices that the host can check at each call: see input_checks.h.
struct InputCheck {
  GraphNode node;                // node with the requirement, or with indices; an indexing node has its report name
  size_t list = 0;               // input index of the list
  std::vector<GraphNode> chain;  // nodes that compute the list, in order
  std::vector<size_t> inputs;    // indices of the graph inputs that they read
};

struct ProgramGraph {
  // Copies a part of a finished graph. An output is named after its value; outputs of the graph keep their names.
  ProgramGraph(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options);

  GraphValue& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const GraphValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  std::optional<Shape> known_shape(ValueId id) const { return id != kAbsent && value(id).is_known() ? value(id).shape : std::nullopt; }
  // Returns the internal dtype of a constant or owned input: the program's float dtype for floats, else its own.
  DType stored_dtype(const GraphValue& value) const {
    return !is_operator_float(value.dtype) ? value.dtype : value.fp32 ? DType::float32 : float_dtype;
  }
  DType float_dtype_of(const ProgramNode& node) const { return node.fp32 && !node.low_precision_factors ? DType::float32 : float_dtype; }
  ValueId add_value(GraphValue new_value);
  // Updates the report for a node fused into another.
  void mark_fused(uint32_t row, uint32_t into, Fusion fusion) {
    report[row].note = "fused into " + report[into].node;
    report[row].fusion = fusion;
    report[into].fp32_requested = report[into].fp32_requested || report[row].fp32_requested;
  }
  // Removes the marked nodes; `removed` is by node.
  void erase_nodes(const std::vector<bool>& removed);
  // Returns the number of uses of each value by nodes and outputs.
  std::vector<uint32_t> uses() const;

  std::string name;
  DType float_dtype = DType::float32;  // dtype of internal floats
  bool deterministic = false;          // results are bit-identical in every run
  std::shared_ptr<const MeasuredVariants> measured;
  // Kernel variants of past bindings that spill; never null.
  std::shared_ptr<SpilledVariants> spilled = std::make_shared<SpilledVariants>();
  std::vector<GraphValue> values;
  std::vector<ProgramNode> nodes;  // nodes in execution order
  std::vector<ValueId> inputs;
  std::vector<std::pair<std::string, ValueId>> outputs;
  size_t index_checks = 0;           // number of check outputs at the end: see index_checks.h
  std::vector<ReportRow> report;     // one row per node of the graph, in order
  std::vector<bool> dynamic_inputs;  // for each input: whether its sizes may vary, since it comes from another part or has assumed sizes
  std::vector<bool> host_outputs;    // for each output; empty: none, see Subgraph
  std::vector<bool> boundary_inputs, boundary_outputs;  // for each input and output; empty: none, see Subgraph
  std::vector<bool> shape_value_inputs;                 // inputs whose elements shapes depend on: part of the bind key
  std::vector<InputCheck> checks;                       // checks, at each call, of elements that shapes do not depend on
};

// Whether the operator moves elements unchanged.
bool moves_elements_unchanged(const OperatorRow& row);

// Whether only the host reads the elements of the input.
bool is_host_input(const ProgramNode& node, size_t input);

}  // namespace pumice
