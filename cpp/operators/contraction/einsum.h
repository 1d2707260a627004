// Parses Einsum equations.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

class LowerContext;

// Axis labels: a letter stands for itself; ellipsis axes are negative, and -1 is the last one.
struct EinsumLabels {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::map<int, int64_t> sizes;

  Shape shape_of(const std::vector<int>& labels) const;
};

// Parses an equation. Throws GraphError naming `node` if it is invalid.
EinsumLabels einsum_labels(std::string_view node, std::string_view equation, const std::vector<Shape>& shapes);

// FLOPs of the reductions of single operands and of the pairwise matrix products.
uint64_t einsum_flop(const LowerContext& node);

}  // namespace pumice
