// A graph as a program runs it: folded, fused and retyped by the passes, its weights placed; free of data shapes.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"
#include "graph/passes/program_options.h"
#include "operators/row/lowering.h"

namespace pumice {

// One line of a program's report: what runs a node, with what, and why.
struct ReportRow {
  std::string node, op, kernel = {}, note = {};  // note: "fused into conv1", "view", "folded", ""
  std::optional<Fusion> fusion = {};             // that has taken the node up
  bool added = false;                            // by the passes: no node of the graph
  std::optional<DType> dtype = {};               // of its first output
  std::string wide = {};                         // why the node computes in float32 in a program of narrower floats; "": it does not
  std::string precision = {};                    // the storage mode of a float's elements on this device, else the dtype
  std::string scales = {};                       // what becomes of float32 scales on devices with matrix units of halves; "": nothing
  bool is_float32 = false;                       // whether the caller wants that of the node, or of one that has become part of it
};

struct ProgramNode : GraphNode {
  ProgramNode(GraphNode node, uint32_t row_index) : GraphNode(std::move(node)), report(row_index) {}

  std::string epilogue = "x";            // GLSL over x, and over residual where input kResidualInput is one
  bool exact_epilogue = false;           // its functions are to be those of float32, also where the result has 16 bits
  std::optional<Expression> expression;  // of a fused map, over map_input_names(); of an epilogue with a residual, over these two
  int64_t concurrent = 1;                // see LowerContext
  bool has_residual = false;
  uint32_t report;              // its row of the report
  bool on_host = false;         // tried on the host at bind
  bool demanded = false;        // because shapes depend on it, or there is no other way
  bool wide = false;            // computes in float32 whatever the program does
  bool narrow_factors = false;  // the factors of a wide node are numbers of the program's floats, and its weights are packed as such
  // How the constant factor of a node in float32 is split into halves; none where it is not.
  std::optional<HalvesOfFactors> halves;
  bool only_shape = false;  // nobody reads more of its outputs than their shapes
};

// Nodes of a graph that run one after the other, without IF and WHILE, and what they exchange with the rest.
struct GraphPart {
  std::string name;
  std::vector<size_t> nodes;             // in the graph's order
  std::vector<ValueId> inputs, outputs;  // of the graph
  std::vector<bool> host_outputs;        // by output: its elements are computed on the host, if they can be
  std::string prefix = {};               // of its nodes' names in reports
  // By input and output: it comes from another part or goes to one, or into or out of a branch or a body. Empty: none does.
  std::vector<bool> entering = {}, leaving = {};
};
GraphPart whole(const Graph& graph);

// A list, or indices, whose rules the host can check where a call hands it the elements: see input_checks.h.
struct InputCheck {
  GraphNode node;                // which requires something of the list, or refuses indices, and then has its name in reports
  size_t list = 0;               // its input
  std::vector<GraphNode> chain;  // the nodes that compute the list, in their order
  std::vector<size_t> inputs;    // of the graph, from which they do
};

struct ProgramGraph {
  // A copy of a part of a finished graph. Its outputs have the names of their values, those of the graph itself their own.
  ProgramGraph(const Graph& graph, const GraphPart& part, const ProgramOptions& options);

  GraphValue& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const GraphValue& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  std::optional<Shape> known_shape(ValueId id) const { return id != kAbsent && value(id).is_known() ? value(id).shape : std::nullopt; }
  // The dtype that a constant or an owned input is stored in inside: that of the program's floats for floats, else its own.
  DType stored_dtype(const GraphValue& value) const {
    return !is_working_float(value.dtype) ? value.dtype : value.wide ? DType::float32 : float_dtype;
  }
  DType float_dtype_of(const ProgramNode& node) const { return node.wide && !node.narrow_factors ? DType::float32 : float_dtype; }
  ValueId add_value(GraphValue made);
  // The row of a node that has become part of another one.
  void absorb(uint32_t row, uint32_t into, Fusion fusion) {
    report[row].note = "fused into " + report[into].node;
    report[row].fusion = fusion;
    report[into].is_float32 = report[into].is_float32 || report[row].is_float32;
  }
  // Takes the nodes out that are marked, by their places.
  void erase_nodes(const std::vector<bool>& gone);
  // How often nodes and outputs use each value.
  std::vector<uint32_t> uses() const;

  std::string name;
  DType float_dtype = DType::float32;  // of float values inside
  bool deterministic = false;          // results are the same bits in every run
  std::shared_ptr<const MeasuredVariants> measured;
  // The variants that spill, of the kernels that bindings had; the pointer is never null.
  std::shared_ptr<SpilledVariants> spilled = std::make_shared<SpilledVariants>();
  std::vector<GraphValue> values;
  std::vector<ProgramNode> nodes;  // in an order in which they can run
  std::vector<ValueId> inputs;
  std::vector<std::pair<std::string, ValueId>> outputs;
  size_t index_checks = 0;              // of the last outputs: see index_checks.h
  std::vector<ReportRow> report;        // of every node of the graph, in its order
  std::vector<bool> made_inputs;        // by input: another part makes it, or its sizes are assumed, so that they are what they are
  std::vector<bool> host_outputs;       // by output; empty: none. See GraphPart
  std::vector<bool> entering, leaving;  // by input and by output; likewise
  std::vector<bool> value_inputs;       // inputs whose elements shapes depend on: part of the bind key
  std::vector<InputCheck> checks;       // of elements that they do not depend on, made at every call
};

// Elements are moved as they are.
bool keeps_bits(const OperatorRow& row);

// The host reads the elements of the input, and the device does not.
bool is_host_input(const ProgramNode& node, size_t input);

}  // namespace pumice
