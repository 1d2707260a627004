// Positions: floats computed from integers and constants that need more precision than 16 bits.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Requests float32 for nodes that compute positions, angles and the like: from conversions of integers to floats (Cast, Range) or scaled
// graph inputs, to nodes sensitive to errors below 1 (Sin, Cos, Floor, comparisons, ArgMax, Cast to integers) or operands such as scales
// and limits that the host reads. float16 rounds 2049 to 2048, bfloat16 rounds 257 to 256. These chains are a tiny part of a model. A Cast
// from 32-bit integers yields float32 if elementwise operators or moves read it: a sum of int8 products exceeds float16 before it is
// scaled.
// A graph with If, Loop or Scan is split into parts, with values between them stored as float32: inputs of a part count as integers, and
// outputs that depend on them by such arithmetic alone, such as loop counters, are computed in float32.
// The caller's float32_nodes use the same marks: see float32_nodes.h.
void keep_positions_fp32(ProgramGraph& graph);

}  // namespace pumice
