// An output of a graph may be declared by its maker, beside what its nodes tell.
#pragma once

#include <optional>
#include <string>

#include "graph/description/graph.h"

namespace pumice {

struct DeclaredOutput {
  std::optional<Shape> shape;  // kUnknownSize: any size
  std::optional<DType> dtype;
  Quantization quantization;  // no scale and no zero point: any

  bool is_empty() const { return !shape && !dtype && quantization.scale.empty() && !quantization.zero_point; }
};

// The value to give as the output: `value`, or one that passes it on and is checked when the program is bound, where its shape is not known
// yet. Sizes that are declared count as known from then on. Throws GraphError, naming the output, for what is known to be otherwise.
ValueId declared_output(Graph& graph, const std::string& name, ValueId value, const DeclaredOutput& declared);

}  // namespace pumice
