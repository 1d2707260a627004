// Operations that a graph accepts by name but that have no entry in the operator table: each expands to several nodes, or stays one late
// node until shapes are known.
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

// Element type and parameters of an output, independent of its rank.
struct DeferredOutput {
  DType dtype;
  Quantization quantization;
};

// Thrown if an expansion requires a rank or size that is unknown.
class UnknownShapeError : public UnsupportedError {
 public:
  using UnsupportedError::UnsupportedError;
};

class CompoundOperation {
 public:
  virtual ~CompoundOperation() = default;
  virtual std::string_view name() const = 0;
  // Adds the nodes and returns the operation's outputs. `declared`: the attributes that the caller gave. Throws GraphError if the operands
  // are invalid, UnsupportedError if they are not supported, UnknownShapeError if the operation has to become a late node.
  virtual std::vector<CompoundOutput> expand(Graph& graph, const std::string& node, const std::vector<ValueId>& operands,
                                             const Attributes& declared) const = 0;
  // Returns the operator definition of a late node: the operation's name and its host-read inputs. It has no shape rule and is never
  // lowered.
  virtual const OperatorRow& deferred_row() const = 0;
  // Returns the outputs of a late node. Throws for errors that do not depend on rank.
  virtual std::vector<DeferredOutput> infer_deferred_outputs(const Graph& graph, const std::string& node,
                                                             const std::vector<ValueId>& operands, const Attributes& declared) const = 0;
  // Infers the shapes of a late node's outputs; returns false if an input shape is unknown. Throws GraphError if the inputs are invalid,
  // UnsupportedError if they are not supported.
  virtual bool infer_deferred_shapes(const Graph& graph, const GraphNode& node, ShapeInference& known) const = 0;
};

}  // namespace pumice
