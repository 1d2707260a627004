// Nodes that rearrange a tensor without touching its memory: what they make lies in it by other strides.
#pragma once

#include <optional>
#include <vector>

#include "graph/passes/program_graph.h"

namespace pumice {

// Strides, and the first element, in what is viewed.
struct StridedView {
  Strides strides;
  int64_t first = 0;
};

// Transpose, Split, and what only gives another shape.
bool rearranges(const ProgramNode& node);
// The outputs, whose descs are given (null: absent), as views of x; none where one of them cannot be.
std::optional<std::vector<StridedView>> strided_views(const ProgramNode& node, const TensorDesc& x,
                                                      const std::vector<const TensorDesc*>& outputs);
// Two ways to find the same elements: axes of one element do not count.
bool same_strides(const Shape& shape, const Strides& a, const Strides& b);

}  // namespace pumice
