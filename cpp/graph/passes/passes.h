// Graph passes between Graph and Program. They preserve semantics and do not depend on the shapes of the data.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// Replaces nodes with constant inputs by constants, if the host can compute them.
void fold_constants(ProgramGraph& graph);
// Removes nodes that no output depends on, and optional outputs without readers.
void remove_dead_nodes(ProgramGraph& graph);
// Changes internal floats to graph.float_dtype. Inputs and outputs keep their dtypes and get casts if necessary.
void set_precision(ProgramGraph& graph);
// Removes casts at inputs and outputs that already have the internal dtype.
void remove_redundant_casts(ProgramGraph& graph);
// Marks nodes that the host evaluates at binding, and inputs whose elements shapes depend on.
void find_host_nodes(ProgramGraph& graph);

// Runs all passes in order, with the fusions that `options` allows.
ProgramGraph run_passes(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options);

}  // namespace pumice
