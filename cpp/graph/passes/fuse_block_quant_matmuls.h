// Fuses a gate product and RMSNorm into matmuls with block-quantised weights.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after map fusion. If a product's epilogue reads another product of the same input (gate and up projections), one node computes both.
// An RMSNormalization read only by such products is fused into them.
void fuse_block_quant_matmuls(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
