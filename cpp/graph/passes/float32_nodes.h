// Nodes that the caller wants to compute in float32 in a 16-bit program.
#pragma once

#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Adds to `names` all nodes inside the IF and WHILE nodes among them. Throws GraphError for an unknown name.
std::set<std::string> find_float32_nodes(const Graph& graph, const std::set<std::string>& names);

// Marks the nodes whose report rows ask for float32, and nodes that they were fused into: each computes in float32, with its own float32
// constants. Runs after fusion; a fused node is float32 if any of its nodes is.
void mark_float32_nodes(ProgramGraph& graph);

}  // namespace pumice
