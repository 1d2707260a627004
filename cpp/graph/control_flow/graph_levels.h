// Splits the nodes of a graph into levels: regions of plain nodes, separated by control flow and host reads.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// Elements computed on the device that the host reads because a shape depends on them.
struct HostReadback {
  size_t node;    // index of the node that needs the elements
  ValueId value;  // input of that node
};

// The plain nodes of a level run first, then its IF and WHILE nodes. Nodes are stored as indices.
struct GraphLevel {
  std::vector<size_t> plain, control;
  std::vector<HostReadback> read_backs;  // host reads before the level
};

struct GraphLevels {
  std::vector<GraphLevel> levels;
  // For each value: whether a control node or a region of another level reads it, or it is an output.
  std::vector<bool> crosses_levels;
  std::vector<bool> on_host;  // for each value: whether the host reads its elements in a later level, and its region can return them
                              // without waiting for the device
};

// Returns, for each value, whether the outputs depend on it; with `all`, marks the inputs and outputs of every node.
std::vector<bool> find_needed_values(const Graph& graph, bool all);
bool is_needed(const GraphNode& node, const std::vector<bool>& needed);

// Assigns nodes to levels. A node comes after the control nodes it depends on and, if the host reads its input elements
// (OperatorRow::host_inputs), after the region that computes them. The host can compute elements that follow from shapes, constants, inputs
// and earlier reads. `outputs`: outputs of the graph.
GraphLevels compute_levels(const Graph& graph, const std::vector<bool>& needed, const std::vector<ValueId>& outputs);

// Returns a report text: the values that the host reads before a level, and the nodes that need them; "" if it reads nothing.
std::string describe_read_backs(const Graph& graph, const GraphLevel& level);

}  // namespace pumice
