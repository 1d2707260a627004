// Positions: floats computed from integers and constants, which need more precision than 16 bits.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Requests float32 for nodes that compute positions, angles and similar values: from integers converted to float (Cast, Range) or scaled
// graph inputs, up to nodes that are sensitive to errors below 1 (Sin, Cos, Floor, comparisons, ArgMax, Cast to integers) or inputs that
// the host reads, such as scales and limits. float16 rounds 2049 to 2048, bfloat16 rounds 257 to 256. These chains are a tiny part of a
// model. A Cast from 32-bit integers yields float32 if elementwise operators or data movement read it: a sum of int8 products exceeds
// float16 before it is scaled. In a graph with If, Loop or Scan, values between regions are stored as float32: inputs of a region count as
// integers, and outputs computed from them by such arithmetic, such as loop counters, are float32. The float32_nodes of the caller use the
// same marks; see force_fp32_nodes.h.
void keep_positions_fp32(ProgramGraph& graph);

}  // namespace pumice
