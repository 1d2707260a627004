// Finds what the shape of a value depends on.
#pragma once

#include <optional>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// Returns the integer inputs whose elements the value's shape depends on, besides all input shapes; with `elements`, those its elements
// depend on. Returns nullopt if it depends on device results, an IF or a WHILE.
std::optional<std::vector<ValueId>> shape_sources(const Graph& graph, ValueId value, bool elements = false);

}  // namespace pumice
