// Nodes that a caller wants to compute in float32 in a program of narrower floats.
#pragma once

#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// The names with those of all nodes in the graphs of the IF and WHILE nodes among them. Throws GraphError for a name that no node has.
std::set<std::string> float32_nodes_of(const Graph& graph, const std::set<std::string>& names);

// Marks the nodes whose report rows are asked for, and what has taken them up: each computes in float32, from constants of its own in
// float32. Comes after what makes several nodes one, which is then as wide as any of them.
void keep_float32_nodes(ProgramGraph& graph);

}  // namespace pumice
