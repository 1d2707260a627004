// Fuses bidirectional LSTM, GRU and RNN nodes with the nodes that concatenate their initial states or split their results.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A fused node reads initial states directly instead of through a Concat of the directions, writes results directly as the outputs of a
// Split by direction, and writes Y in the order of a Transpose that groups the directions of each time step. Runs before precisions are
// chosen, so that states that are program inputs or outputs need no cast.
void fuse_bidirectional_rnn(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
