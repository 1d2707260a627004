// Declarations of graph outputs by the author of the graph, checked against shape inference.
#pragma once

#include <optional>
#include <string>

#include "graph/description/graph.h"

namespace pumice {

struct DeclaredOutput {
  std::optional<Shape> shape;  // kUnknownSize matches any size
  std::optional<DType> dtype;
  Quantization quantization;  // empty matches any quantization

  bool is_empty() const { return !shape && !dtype && quantization.scale.empty() && !quantization.zero_point; }
};

// Returns the value to use as the output: `value` itself or, if its shape is not known yet, the output of a node that checks it at binding.
// Declared sizes count as known from then on. Throws GraphError naming the output if the declaration contradicts known facts.
ValueId apply_declared_output(Graph& graph, const std::string& name, ValueId value, const DeclaredOutput& declared);

}  // namespace pumice
