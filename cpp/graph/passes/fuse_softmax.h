// Fuses Softmax into the MatMul before it.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after elementwise fusion. Softmax along the rows of a MatMul with constant weights becomes an output of the MatMul, if its operator
// supports that. The MatMul may have other readers.
void fuse_softmax(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
