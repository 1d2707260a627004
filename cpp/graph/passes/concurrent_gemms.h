// Counts products that can run concurrently, such as Q, K and V projections: each gets only part of the device.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after map fusion. Sets, for each product with a constant matrix, how many independent products share its input and matrix shape.
void count_concurrent_gemms(ProgramGraph& graph);

}  // namespace pumice
