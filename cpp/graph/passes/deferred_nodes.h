// Graphs whose expansion is deferred until shapes are known: each such operation is one node until binding.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

bool has_deferred_nodes(const Graph& graph, const Subgraph& subgraph);

[[noreturn]] void reject_deferred_node(const GraphNode& node);  // throws UnsupportedError, because a rank is still unknown at binding

// Rebuilds the graph for these input shapes and, if given, input elements. Expands all deferred nodes whose shapes are then known. Throws
// GraphError if the inputs are invalid, UnsupportedError if an operation is not supported.
std::shared_ptr<Graph> expand_deferred_nodes(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                             const std::vector<std::optional<HostTensor>>& values = {});

}  // namespace pumice
