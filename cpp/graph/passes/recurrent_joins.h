// Recurrent layers of two directions and the nodes that bring their states together and take their results apart.
#pragma once

#include "graph/passes/program_graph.h"

namespace pumice {

// A layer reads the states that a Concat joins by direction as they are, makes the results that a Split takes apart by direction as these
// parts, and Y in the order in which a Transpose has it that brings the directions of a sequence's step together. Before precisions are
// chosen, so that states at the border of the program need no cast.
void join_recurrences(ProgramGraph& graph, const FusionSet& wanted);

}  // namespace pumice
