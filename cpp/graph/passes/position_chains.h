// Positions: floats that follow from integers and constants, and need more digits than 16 bits have.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Asks for float32 for the nodes that compute positions, angles and the like: from where integers become floats (Cast, Range), or from
// an input of the graph that is scaled, to a node that is sensitive to an error of a fraction of 1 (Sin, Cos, Floor, comparisons, Cast to
// integers). In float16 the angle of position 2049 is that of 2048, in bfloat16 already that of 257 is another one's. Such chains are a
// vanishing part of a model. A Cast from integers of 32 bits and more makes float32 in any case: a sum of products of int8 is beyond
// float16 before it is scaled. The caller's float32_nodes are the same marks: see float32_nodes.h.
void keep_position_chains(ProgramGraph& graph);

}  // namespace pumice
