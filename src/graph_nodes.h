// Python's Values and Nodes of a Graph, and functions that add nodes.
#pragma once

#include <string>
#include <vector>

#include "bindings.h"
#include "graph/description/graph.h"

namespace pumice {

// A graph value in Python. Keeps its graph alive.
struct PyValue {
  std::shared_ptr<Graph> graph;
  ValueId id;

  const GraphValue& get() const { return graph->values()[static_cast<size_t>(id)]; }
};

// A read-only view of a graph's node.
struct PyNode {
  std::shared_ptr<Graph> graph;
  size_t index;

  const GraphNode& get() const { return graph->nodes()[index]; }
};

using Values = py::typing::Tuple<PyValue, py::ellipsis>;

// Converts a Value of this graph, an array (a constant) or None; with `numbers`, also numbers and lists of numbers as NNAPI operands.
// Throws GraphError naming `user`.
ValueId get_value_id(const std::shared_ptr<Graph>& self, const py::handle& value, const std::string& user, bool numbers = false);
std::vector<ValueId> get_value_ids(const std::shared_ptr<Graph>& self, const std::vector<py::object>& values, const std::string& user);

// Converts the shape of a declared input or output; None: unknown. Throws GraphError (R8) for negative sizes.
std::optional<Shape> parse_optional_shape(const std::optional<std::vector<std::optional<Integer>>>& sizes);

// Returns a small tensor of a mapped file as a copy, any other tensor unchanged.
HostTensor copy_if_small(HostTensor tensor);

// Optional names of a node and its outputs.
struct NodeNames {
  std::string node;
  std::vector<std::string> outputs;
};

// Inputs of a loop: carried values (also outputs), state (internal to the body), and invariants.
struct LoopArguments {
  std::vector<py::object> carried, state, invariant;
};

// Implement Graph.add, .if_ and .while_.
py::object add_node(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& inputs, const Integer& outputs,
                    NodeNames names, const py::kwargs& attributes);
Values add_if(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& then, const py::object& orelse,
              const std::vector<py::object>& inputs, NodeNames names);
Values add_while(const std::shared_ptr<Graph>& self, const py::object& condition, const py::object& body, const LoopArguments& args,
                 NodeNames names);

// Adds NNAPI's IF ("nnapi::IF") or WHILE, with NNAPI's operand order.
std::vector<ValueId> add_nnapi_control_flow(const std::shared_ptr<Graph>& self, const std::string& op, const py::args& operands,
                                            size_t outputs, const std::string& name, std::vector<std::string> output_names);
// Converts a graph argument; null for None.
std::shared_ptr<Graph> parse_graph(const py::object& graph, const std::string& role, const std::string& user);

}  // namespace pumice
