// Nodes that the caller wants to compute in float32 in a 16-bit program (float32_nodes).
#pragma once

#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Returns `names` and the names of all nodes inside the IF and WHILE nodes among them. Throws GraphError for an unknown name.
std::set<std::string> find_float32_nodes(const Graph& graph, const std::set<std::string>& names);

// Marks nodes as float32 if their report row requests it, which includes nodes fused into them. Each gets its own float32 copy of its
// constants. Runs after fusion.
void mark_float32_nodes(ProgramGraph& graph);

}  // namespace pumice
