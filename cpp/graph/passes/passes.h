// Passes between Graph and Program: they preserve semantics and are independent of data shapes.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Folds nodes with constant inputs that the host can compute.
void fold_constants(ProgramGraph& graph);
// Removes nodes that no output needs, and optional outputs without readers.
void remove_dead_nodes(ProgramGraph& graph);
// Changes internal floats to graph.float_dtype; inputs and outputs keep their dtypes, with Casts where they differ.
void set_precision(ProgramGraph& graph);
// Removes casts at inputs and outputs that have the internal dtype already.
void remove_redundant_casts(ProgramGraph& graph);
// Marks nodes to be evaluated on the host at binding, and inputs whose elements shapes depend on.
void find_host_nodes(ProgramGraph& graph);

// Runs all passes in order; fuses as `options` allow.
ProgramGraph run_passes(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options);

}  // namespace pumice
