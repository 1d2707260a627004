// Counts matmuls that can run concurrently, such as Q, K and V projections. Each then gets only part of the device.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Runs after elementwise fusion. Sets, for each matmul with constant weights, the number of independent matmuls that share its input and
// weight shape.
void count_concurrent_gemms(ProgramGraph& graph);

}  // namespace pumice
