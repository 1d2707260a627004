// Fuses cropping into transposed convolutions.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A Slice that crops constant borders off the output of a ConvTranspose, as its only reader, becomes part of its pads, so that the borders
// are never computed. Not done if the result could be so small that the Slice would be empty.
void fuse_crops(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
