// Makes the nodes in ProgramOptions::float32_nodes compute in float32 in a 16-bit program.
#pragma once

#include "graph/description/graph.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Returns `names` and the names of all nodes inside the IF and WHILE nodes among them. Throws GraphError for an unknown name.
std::set<std::string> expand_fp32_node_names(const Graph& graph, const std::set<std::string>& names);

// Marks nodes as float32 if their report row requests it, which includes nodes fused into them. Each gets its own float32 copy of its
// constants. Runs after fusion.
void force_fp32_nodes(ProgramGraph& graph);

}  // namespace pumice
