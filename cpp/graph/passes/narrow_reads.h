// Nodes in float32 that read what others make in 16 bits.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Takes away the casts from 16 bits to float32 that no map has taken up, where the kernels of all that read them take 16 bits as well.
// A product of which all factors are such numbers, or constants that 16 bits hold as they are, is computed from these: its kernels sum in
// float32 and make float32.
// Comes after the fusion of maps: a map that takes a cast up rounds nothing, and costs no dispatch.
void read_narrow_floats(ProgramGraph& graph);

}  // namespace pumice
