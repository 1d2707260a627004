// Compiles a graph into one operator whose memory the caller binds with binding tables.
#pragma once

#include <memory>

#include "graph/description/graph.h"
#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Finishes the graph and compiles all of it into one operator for binding tables, initializers and command lists, with a slot for every
// input (C8), used or not (G6). Constants are read now (G5) and stored in the persistent resource with the owned inputs. Throws GraphError
// if a size is unknown, UnsupportedError listing everything that is not supported, including nodes that need the host.
std::shared_ptr<CompiledOperator> compile_operator(Graph& graph, std::shared_ptr<Context> context, const ExecutionOptions& options);

}  // namespace pumice
