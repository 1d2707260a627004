// Fuses a gate product and RMSNorm into matmuls with block-quantised weights.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after map fusion. A product whose epilogue reads another product of the same input computes that one too (gate and up projections).
// RMSNormalization read only by such products is fused into them.
void join_block_products(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
