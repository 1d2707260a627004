// Products that run beside each other, as those of queries, keys and values do: each has the device to itself by a part only.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// After maps are fused. Tells each product with a constant matrix how many others multiply the same rows by matrices of the same size, with
// nothing to wait for.
void count_concurrent_products(ProgramGraph& graph);

}  // namespace pumice
