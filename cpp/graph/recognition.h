// Operators that a graph writes out in primitives become one node again.
#pragma once

#include "graph/program_graph.h"

namespace pumice {

// Attention: softmax(scale q k^T + mask) v, whose probabilities nobody else reads, with the transpositions around it.
void recognise_attention(ProgramGraph& graph);

}  // namespace pumice
