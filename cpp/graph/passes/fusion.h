// Fusion of elementwise operators into what makes their operand, decided by what rows declare and never by an operator's name.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Chains of maps with one varying operand become the epilogue of the contraction, window or reduction before them; products and
// convolutions take a second operand of their result's shape too (a residual). Maps of maps of one shape become one map of up to four
// operands. Values that are used twice or are outputs stay. The last of the passes: it relies on the dtypes that values have in memory.
void fuse_maps(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
