// Orders the nodes of a graph that needs several lists of dispatches: regions of plain nodes, separated by control flow and host reads.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// Device-computed elements that the host reads because a shape depends on them.
struct ReadBack {
  size_t node;    // the node that needs them
  ValueId value;  // one of its inputs
};

// Plain nodes, followed by IF and WHILE nodes.
struct Level {
  std::vector<size_t> plain, control;
  std::vector<ReadBack> read_backs;  // reads before the level
};

struct GraphLevels {
  std::vector<Level> levels;
  // For each value: whether it is an operand of a control node, an operand of a region in another level, or an output.
  std::vector<bool> crosses_levels;
  std::vector<bool> on_host;  // for each value: whether a later level reads its elements and its region can return them without a wait
};

// Marks the values that the outputs depend on; with `all`, also the inputs and outputs of every node.
std::vector<bool> needed_values(const Graph& graph, bool all);
bool is_needed(const GraphNode& node, const std::vector<bool>& needed);

// Assigns nodes to levels. A node comes after the control nodes it depends on and, if it reads elements on the host
// (OperatorRow::host_inputs), after the region that computes them. The host can compute elements that follow from shapes, constants, inputs
// and earlier reads. `outputs`: outputs of the graph.
GraphLevels compute_levels(const Graph& graph, const std::vector<bool>& needed, const std::vector<ValueId>& outputs);

// Describes, for reports, what the host reads before a level and for which nodes; "" if it reads nothing.
std::string describe_read_backs(const Graph& graph, const Level& level);

}  // namespace pumice
