// Fuses RoPE and KV cache updates into one node.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// If the queries and keys of an attention are rotated by the same angles, and its keys and values are written to the same cache rows, these
// four nodes become "pumice::RotaryCaches". Runs after index checks are collected, which refer to the separate nodes.
void fuse_rotary_caches(ProgramGraph& graph, const FusionSet& fusions);

}  // namespace pumice
