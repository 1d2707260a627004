// Parses Einsum equations.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

class LowerContext;

// Axis labels: letters are themselves, ellipsis axes are negative, with -1 the last.
struct EinsumLabels {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::map<int, int64_t> sizes;

  Shape shape_of(const std::vector<int>& labels) const;
};

// Parses an equation. Throws GraphError naming `node`.
EinsumLabels parse_einsum(std::string_view node, std::string_view equation, const std::vector<Shape>& shapes);

// FLOPs of the reductions of single operands and the pairwise matrix products.
uint64_t einsum_flop(const LowerContext& node);

}  // namespace pumice
