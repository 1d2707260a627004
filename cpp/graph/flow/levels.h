// The order of a graph that one list of dispatches cannot run: regions of plain nodes, and between them what the host decides or reads.
#pragma once

#include <string>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// Elements that the host reads when the device has made them, because a shape depends on them.
struct ReadBack {
  size_t node;    // the node that needs them
  ValueId value;  // one of its inputs
};

// Plain nodes that run one after the other, then IF and WHILE nodes.
struct Level {
  std::vector<size_t> plain, control;
  std::vector<ReadBack> read_backs;  // before the level
};

struct GraphLevels {
  std::vector<Level> levels;
  std::vector<bool> crosses;  // by value: it is an operand of a control node, of another level's region, or an output
  std::vector<bool> on_host;  // by value: a later level reads its elements, and its own region can tell them without a wait
};

// Marks the values that an output needs; with `all`, those of every node.
std::vector<bool> needed_values(const Graph& graph, bool all);
bool is_needed(const GraphNode& node, const std::vector<bool>& needed);

// Puts nodes into levels. A node waits for the control nodes that it depends on, and where it reads elements on the host
// (OperatorRow::host_inputs) for the region that makes them; elements that follow from shapes, constants, inputs and what is read already
// are the host's own. `outputs`: what the graph gives.
GraphLevels levels_of(const Graph& graph, const std::vector<bool>& needed, const std::vector<ValueId>& outputs);

// Text for reports: what the host reads before a level, and for which nodes; "" where it reads nothing.
std::string cut_text(const Graph& graph, const Level& level);

}  // namespace pumice
