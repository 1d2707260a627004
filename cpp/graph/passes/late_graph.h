// Graphs with nodes that depend on a rank or size that is not known yet: one node for each operation until a program is bound to shapes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

bool has_late(const Graph& graph, const GraphPart& part);

[[noreturn]] void refuse_late(const GraphNode& node);  // UnsupportedError: all that binding knows has not told its rank

// The same nodes over inputs of these shapes, and with these elements where they are given, all but those whose shapes are still open
// expanded. Throws GraphError, UnsupportedError.
std::shared_ptr<Graph> expanded(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                const std::vector<std::optional<HostTensor>>& values = {});

}  // namespace pumice
