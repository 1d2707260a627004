// Parses Einsum equations.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

class LowerContext;

// Axis labels of an equation. A letter is its character code. The ellipsis axes are negative; -1 is the last of them.
struct EinsumLabels {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::map<int, int64_t> sizes;

  Shape get_shape(const std::vector<int>& labels) const;
};

// Parses an equation. Throws a GraphError that names `node` if it is invalid or does not match the shapes.
EinsumLabels parse_einsum(std::string_view node, std::string_view equation, const std::vector<Shape>& shapes);

// Counts the FLOPs of the pairwise matrix products and of the reductions of single operands.
uint64_t count_einsum_flops(const LowerContext& node);

}  // namespace pumice
