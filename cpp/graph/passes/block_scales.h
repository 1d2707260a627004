// Scales of matrices in blocks that a file has as float32, in a program of halves.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Marks the products with matrices in blocks whose float32 scales may be rounded to halves, which the kernels of matrix units read: all are
// zero, or normal numbers of float16. Others keep float32 scales and take kernels without these units. The report says either on devices
// that have them. Comes after set_precision(), which decides what computes in float32.
void round_block_scales(ProgramGraph& graph);

}  // namespace pumice
