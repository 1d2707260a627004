// Borders that are cut off what a transposed convolution makes.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A Slice that takes constant borders off the result of a ConvTranspose, which it alone reads, becomes a part of that one's pads: what is
// cut off is never computed. Results so small that the Slice would give none keep it.
void join_crops(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
