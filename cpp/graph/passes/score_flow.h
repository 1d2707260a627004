// Scores: what Softmax and its like read, into which masks of -3.4e38 and -1e9 are added.
#pragma once

#include <set>

#include "graph/passes/program_graph.h"

namespace pumice {

// Asks for float32 for the nodes that make scores from inputs of the graph, or from integers of a wide type, by arithmetic or moves alone.
// Returns the values, inputs of the graph among them, of which a finite number beyond 16 bits becomes the largest one where it is rounded
// to these: a row of minus infinity alone would be NaN behind Softmax. Infinities that the caller hands over stay what they are.
// Comes before keep_float32_nodes(), which takes the marks up.
std::set<ValueId> keep_scores_finite(ProgramGraph& graph);

}  // namespace pumice
