// Operations that are not in the operator table: each expands to several nodes, or stays one deferred node until shapes are known.
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

// Dtype and quantization parameters of an output; they do not depend on its rank.
struct DeferredOutput {
  DType dtype;
  Quantization quantization;
};

// Thrown if an expansion needs a rank or size that is unknown.
class UnknownShapeError : public UnsupportedError {
 public:
  using UnsupportedError::UnsupportedError;
};

class CompoundOperation {
 public:
  virtual ~CompoundOperation() = default;
  virtual std::string_view name() const = 0;
  // Adds the nodes and returns the operation's outputs. `declared`: attributes passed by the caller. Throws GraphError if the operands are
  // invalid, UnsupportedError if they are not supported, UnknownShapeError if the operation has to become a deferred node.
  virtual std::vector<CompoundOutput> expand(Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                             const Attributes& declared) const = 0;
  // Returns the operator row of a deferred node: the name of the operation and its host-read inputs. It has no shape rule and is never
  // lowered.
  virtual const OperatorRow& deferred_row() const = 0;
  // Returns the outputs of a deferred node. Throws for errors that do not depend on ranks.
  virtual std::vector<DeferredOutput> infer_deferred_outputs(const Graph& graph, const std::string& node,
                                                             const std::vector<ValueId>& operands, const Attributes& declared) const = 0;
  // Infers the output shapes of a deferred node; returns false if an input shape is unknown. Throws GraphError if the inputs are invalid,
  // UnsupportedError if they are not supported.
  virtual bool infer_deferred_shapes(const Graph& graph, const GraphNode& node, ShapeInference& known) const = 0;
};

}  // namespace pumice
