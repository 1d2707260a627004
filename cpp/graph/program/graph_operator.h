// A graph as one compiled operator, its memory bound by the caller's tables.
#pragma once

#include <memory>

#include "graph/description/graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// The whole graph, which it finishes, as one operator for tables, initializers and command lists: a slot for every input (C8), used or not
// (G6). Constants are read now (G5) and go to the persistent resource with the owned inputs. Throws GraphError where a size is unknown,
// UnsupportedError with all that is not supported, nodes that need the host among it.
std::shared_ptr<CompiledOperator> compile_operator(Graph& graph, std::shared_ptr<Context> context, const ExecutionOptions& options);

}  // namespace pumice
