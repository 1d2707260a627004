// Fuses max pooling into its producer.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after map fusion. Max pooling with non-overlapping windows is fused into its producer if that has no other reader and its row
// supports it: the intermediate result is never stored. Epilogues of both are kept.
void join_pools(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
