// Rotary embedding and the caches of attention become one node.
#pragma once

#include "graph/description/fusions.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// Where an attention's queries and keys are turned by the same angles, and its keys and values are written into caches at the same rows,
// these four nodes become "pumice::RotaryCaches". After the checks of indices are found, which are stated of the nodes apart.
void join_caches(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
