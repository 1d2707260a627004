// Finds what the shape of a value depends on.
#pragma once

#include <optional>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// The inputs of the graph whose elements, integers, decide about the shape of the value, beside the shapes of all inputs; with `elements`
// about its elements. None where something that only a device, an IF or a WHILE makes decides about it.
std::optional<std::vector<ValueId>> shape_sources(const Graph& graph, ValueId value, bool elements = false);

}  // namespace pumice
