// Fuses cropping into transposed convolutions.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A Slice that crops constant borders off a ConvTranspose output, as its only reader, becomes part of the ConvTranspose's pads: the borders
// are never computed. Not done if a result could be so small that the Slice would be empty.
void fuse_crops(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
