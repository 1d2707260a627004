// The axes that an equation of Einsum names.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

class LowerContext;

// Axes by label: letters are themselves, the axes of an ellipsis are negative, -1 the last of them.
struct EinsumLabels {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::map<int, int64_t> sizes;

  Shape shape_of(const std::vector<int>& labels) const;
};

// Reads an equation. Throws GraphError naming `node`.
EinsumLabels einsum_labels(std::string_view node, std::string_view equation, const std::vector<Shape>& shapes);

// The sums of single operands, and the products that two at a time meet in.
uint64_t einsum_flop(const LowerContext& node);

}  // namespace pumice
