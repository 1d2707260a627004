// Operations that graphs have by name although no row runs them: each becomes several nodes, or one late node until shapes are known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "graph/description/graph_node.h"

namespace pumice {

class ShapeInference;

struct CompoundOutput {
  ValueId value;
  Quantization quantization;
};

// Element type and parameters of an output, which are the same for all ranks.
struct LateOutput {
  DType dtype;
  Quantization quantization;
};

// Thrown where a rank or size has to be known and is not.
class UnknownShapeError : public UnsupportedError {
 public:
  using UnsupportedError::UnsupportedError;
};

class CompoundOperation {
 public:
  virtual ~CompoundOperation() = default;
  virtual std::string_view name() const = 0;
  // Adds the nodes and returns the operation's outputs. `declared`: what the caller says of them. Throws GraphError, UnsupportedError;
  // UnknownShapeError where one late node has to stand for them.
  virtual std::vector<CompoundOutput> expand(Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                             const Attributes& declared) const = 0;
  // The row of a late node: the operation's name, and the lists that the host reads. It has no shape rule and is never lowered.
  virtual const OperatorRow& late_row() const = 0;
  // The outputs of a late node. Throws what every rank is refused with.
  virtual std::vector<LateOutput> late_outputs(const Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                               const Attributes& declared) const = 0;
  // The shapes of a late node's outputs from those of the inputs; false where one of these is not known. Throws GraphError,
  // UnsupportedError.
  virtual bool infer_late(const Graph& graph, const GraphNode& node, ShapeInference& known) const = 0;
};

}  // namespace pumice
