// Poolings that the kernels of what they read do.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// After maps are fused. A pooling by the largest element of windows that lie side by side becomes part of the node that makes what it alone
// reads, where that one's row takes it: the result between them is never stored. What is fused behind either stays where it is.
void join_pools(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
