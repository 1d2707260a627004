// Fuses max pooling into its producer.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after elementwise fusion. Max pooling with non-overlapping windows is fused into its producer if that has no other reader and its
// operator supports it, so that the intermediate result is never stored. The epilogues of both are kept.
void fuse_max_pool(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
