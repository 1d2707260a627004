// Fuses Softmax into the MatMul before it.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after map fusion. Softmax along the rows of a product with a constant matrix becomes a second output of the product, if the
// product's operator supports that. The product may have other readers.
void fuse_softmax(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
