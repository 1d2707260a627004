// Attention scores: inputs of Softmax and similar operators, to which models add masks of -3.4e38 or -1e9.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// Requests float32 for nodes that compute scores from graph inputs or large integers by arithmetic or data movement. Returns the values,
// including graph inputs, that must saturate instead of overflowing to infinity when rounded to 16 bits: a row of only -inf would become
// NaN in Softmax. Infinities passed by the caller are kept. Runs before force_fp32_nodes(), which uses the marks.
std::set<ValueId> keep_attention_scores_finite(ProgramGraph& graph);

}  // namespace pumice
