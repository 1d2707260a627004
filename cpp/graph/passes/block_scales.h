// Converts float32 scales of block-quantised matrices in fp16 programs.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Marks block-quantised products whose float32 scales may be rounded to fp16, as the cooperative matrix kernels require: all are zero or
// normal fp16 numbers. Other products keep float32 scales and use other kernels. On devices with cooperative matrices, the report shows
// which. Runs after set_precision(), which chooses the nodes that compute in float32.
void round_block_scales(ProgramGraph& graph);

}  // namespace pumice
