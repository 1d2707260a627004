// Fuses elementwise operators into their producers. Relies on properties in the operator table, not on operator names.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Chains of elementwise operators with one varying operand become the epilogue of the matmul, convolution, pooling or reduction before
// them. Matmuls and convolutions also accept a second operand with the shape of the result (a residual). Elementwise operators of one shape
// fuse into one operator with up to four operands. Values with several readers and program outputs are still stored. Runs last, because it
// relies on final dtypes.
void fuse_elementwise(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
