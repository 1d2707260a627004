// Rounds float32 scales of block-quantized weights to fp16.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Marks block-quantized matmuls whose float32 scales may be rounded to fp16, as the cooperative matrix kernels require: every scale is zero
// or a normal fp16 number. Other matmuls keep float32 scales and use other kernels; the report lists them on devices with cooperative
// matrices. Runs after set_precision(), which chooses the nodes that compute in float32.
void round_block_scales(ProgramGraph& graph);

}  // namespace pumice
