// Lets float32 nodes read 16-bit values without casts.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Removes casts from 16 bits to float32 that were not fused into maps, if all readers' kernels also accept 16 bits. Products whose factors
// are all 16-bit values or constants exact in 16 bits use those: their kernels accumulate and store in float32. Runs after map fusion: a
// cast fused into a map rounds nothing and costs no dispatch.
void remove_widening_casts(ProgramGraph& graph);

}  // namespace pumice
