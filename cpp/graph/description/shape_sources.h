// Finds the inputs that the shape of a value depends on.
#pragma once

#include <optional>
#include <vector>

#include "graph/description/graph.h"

namespace pumice {

// Returns the integer inputs whose elements the shape of a value depends on (it may depend on all input shapes). With `elements`: the
// inputs that its elements depend on. Returns nullopt if it depends on device results, an IF or a WHILE.
std::optional<std::vector<ValueId>> find_shape_sources(const Graph& graph, ValueId value, bool elements = false);

}  // namespace pumice
