// Fuses elementwise operators into their producers, based on properties in the operator table, never on operator names.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Chains of elementwise operators (maps) with one varying operand become the epilogue of the contraction, window or reduction before them;
// matmuls and convolutions also take a second operand of the result's shape (a residual). Maps of one shape fuse into one map of up to four
// operands. Values with several uses and program outputs are still stored. Runs last: it relies on final dtypes.
void fuse_elementwise(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
