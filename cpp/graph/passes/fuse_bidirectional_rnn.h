// Fuses bidirectional recurrent layers with the nodes that concatenate their states and split their results.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A layer reads initial states directly instead of through a Concat by direction, writes results directly as the parts of a Split by
// direction, and writes Y in the order of a Transpose that groups the directions of each time step. Runs before precisions are chosen, so
// that states at the program's border need no cast.
void fuse_bidirectional_rnn(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
