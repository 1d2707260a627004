// Lets float32 nodes read 16-bit values without casts.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Removes casts from 16 bits to float32 that were not fused into elementwise nodes, if the kernels of all readers also accept 16 bits.
// Matmuls whose factors are all 16-bit values, or constants exact in 16 bits, read them directly: their kernels accumulate and store
// float32. Runs after elementwise fusion, because a cast fused into an elementwise node does not round and costs no dispatch.
void remove_widening_casts(ProgramGraph& graph);

}  // namespace pumice
