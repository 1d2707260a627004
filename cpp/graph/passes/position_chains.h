// Positions: floats that follow from integers and constants, and need more digits than 16 bits have.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Asks for float32 for the nodes that compute positions, angles and the like: from where integers become floats (Cast, Range), or from
// an input of the graph that is scaled, to a node for which an error of a fraction of 1 matters (Sin, Cos, Floor, comparisons, ArgMax,
// Cast to integers), or to scales and limits that the host reads. float16 rounds 2049 to 2048, bfloat16 rounds 257 to 256. Such chains
// are a vanishing part of a model. A Cast from integers of 32 bits makes float32 where maps or moves read it: a sum of products of int8
// is beyond float16 before it is scaled.
// A graph with If, Loop or Scan is cut into parts, and values between them are stored as float32: what enters a part is taken for
// integers, and what leaves it by such arithmetic alone is computed in float32, as a number that a loop counts up.
// The caller's float32_nodes are the same marks: see float32_nodes.h.
void keep_position_chains(ProgramGraph& graph);

}  // namespace pumice
