// What is done to a graph between Graph and Program: each pass keeps its meaning. Free of data shapes.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Nodes whose inputs are all constants become constants, where the host can compute them.
void fold_constants(ProgramGraph& graph);
// Drops nodes that no output needs, and optional outputs that nobody reads.
void remove_dead_nodes(ProgramGraph& graph);
// Floats inside become graph.float_dtype; inputs and outputs keep theirs, with a Cast at the border.
void set_precision(ProgramGraph& graph);
// Drops casts between an input or output and the floats inside where both have one dtype.
void drop_idle_casts(ProgramGraph& graph);
// Marks nodes to be tried on the host at bind, and the inputs whose elements shapes depend on.
void find_host_nodes(ProgramGraph& graph);

// All of them in their order, with fusion where it is wanted.
ProgramGraph run_passes(const Graph& graph, const GraphPart& part, const ProgramOptions& options);

}  // namespace pumice
