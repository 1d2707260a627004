// Fuses the gate matmul and RMSNorm into matmuls with block-quantized weights.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after elementwise fusion. If the epilogue of a matmul reads another matmul of the same input (gate and up projection), one node
// computes both. An RMSNormalization read only by such matmuls is fused into them.
void fuse_block_quant_matmuls(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
