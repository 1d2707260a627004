// Operations of NNAPI whose nodes depend on a rank or size that is not known yet: one node each until a program is bound to shapes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/description/shape_inference.h"
#include "graph/nnapi/operations.h"
#include "graph/passes/program_graph.h"

namespace pumice {

// The row of such a node: the operation's name, and the lists that the host reads. It has no shape rule and is never lowered.
const OperatorRow& late_row(const nnapi::Operation& operation);
bool is_late(const GraphNode& node);
bool has_late(const Graph& graph, const GraphPart& part);

[[noreturn]] void refuse_late(const GraphNode& node);  // UnsupportedError: all that binding knows has not told its rank

// Element types and parameters of the outputs, which are the same for all ranks. Throws what every rank is refused with.
struct LateOutput {
  DType dtype;
  Quantization quantization;
};
std::vector<LateOutput> late_outputs(const Graph& graph, const nnapi::Operation& operation, const std::string& node,
                                     const std::vector<ValueId>& operands, const Attributes& declared);

// The shapes of the outputs from those of the inputs; false where one of these is not known. Throws GraphError, UnsupportedError.
bool infer_late(const Graph& graph, const GraphNode& node, ShapeInference& known);

// The same nodes over inputs of these shapes, and with these elements where they are given, all but those whose shapes are still open
// expanded. Throws GraphError, UnsupportedError.
std::shared_ptr<Graph> expanded(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                const std::vector<std::optional<HostTensor>>& values = {});

}  // namespace pumice
