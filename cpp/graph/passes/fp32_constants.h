// Constants that float16 cannot represent: they stay float32, and nodes that read them compute in float32.
#pragma once

#include <optional>

#include "graph/passes/program_graph.h"

namespace pumice {

// Returns an element that float16 cannot represent: one that overflows, or a scalar that would round to 0.
std::optional<double> find_unrepresentable_fp16(const HostTensor& constant);

// Whether the input is a bound (e.g. of Clip) outside the float16 range, which has no effect and does not require float32.
bool is_inactive_bound(const ProgramGraph& graph, const ProgramNode& node, size_t input);

// Marks constants that float16 cannot represent, and the nodes that read them, as float32 in a float16 program, records the reason in the
// report and logs a warning. Operators that accept mixed precision, such as elementwise operators and reductions, compute in float32 anyway
// if an input is float32.
void keep_fp32_constants(ProgramGraph& graph);

}  // namespace pumice
