// Outputs of a graph may be declared by its author, in addition to what inference finds.
#pragma once

#include <optional>
#include <string>

#include "graph/description/graph.h"

namespace pumice {

struct DeclaredOutput {
  std::optional<Shape> shape;  // kUnknownSize: any size
  std::optional<DType> dtype;
  Quantization quantization;  // empty: any

  bool is_empty() const { return !shape && !dtype && quantization.scale.empty() && !quantization.zero_point; }
};

// Returns the value to use as the output: `value`, or, if its shape is not known yet, a node that passes it on and checks it at binding.
// Declared sizes count as known from then on. Throws GraphError, naming the output, if the declaration contradicts known facts.
ValueId apply_declared_output(Graph& graph, const std::string& name, ValueId value, const DeclaredOutput& declared);

}  // namespace pumice
