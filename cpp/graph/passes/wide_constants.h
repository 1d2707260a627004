// Constants that float16 cannot hold: they stay float32, and so does what the nodes that read them compute.
#pragma once

#include <optional>

#include "graph/passes/program_graph.h"

namespace pumice {

// A number of the tensor that float16 has none for: one beyond its largest, or a lone one so small that it would become 0.
std::optional<double> beyond_float16(const HostTensor& constant);

// A bound, as Clip has, that no number of float16 reaches: what is made of such numbers is of them.
bool is_open_bound(const ProgramGraph& graph, const ProgramNode& node, size_t input);

// Marks the constants of a program of float16 and the nodes that compute in float32 because of them, notes that in the report and warns
// in the log. Maps, reductions and what else mixes floats of either size computes in float32 anyhow where it reads one.
void keep_wide_constants(ProgramGraph& graph);

}  // namespace pumice
