// Softmax that the kernels of what it reads make.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// After maps are fused. Softmax along the rows of a product with a constant matrix becomes a further result of the product, where that
// one's row takes it. Others may read the product as well.
void join_softmax(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
