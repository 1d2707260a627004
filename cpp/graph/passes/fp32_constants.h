// Constants beyond float16: they stay float32, and nodes that read them compute in float32.
#pragma once

#include <optional>

#include "graph/passes/program_graph.h"

namespace pumice {

// Returns an element that float16 cannot represent: one that is too large, or a scalar that would round to 0.
std::optional<double> find_beyond_float16(const HostTensor& constant);

// Whether the input is a bound (such as Clip's) that no float16 number reaches, so that it does not require float32.
bool is_inactive_bound(const ProgramGraph& graph, const ProgramNode& node, size_t input);

// Marks such constants of a float16 program and the nodes that compute in float32 because of them; notes them in the report and logs a
// warning. Elementwise operators, reductions and other nodes that mix float widths compute in float32 anyway when they read one.
void keep_fp32_constants(ProgramGraph& graph);

}  // namespace pumice
