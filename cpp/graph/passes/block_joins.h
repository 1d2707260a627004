// Products with matrices of few bits take up what stands before and beside them: a gate, and the normalisation of what they multiply.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// After maps are fused. A product whose epilogue reads another product of the same rows computes that one too (as models have gate and up
// beside each other), and RMSNormalization that such products alone read becomes a part of them.
void join_block_products(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
