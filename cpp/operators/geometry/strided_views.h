// Operators that rearrange a tensor without touching its memory: what they make lies in it by other strides.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"

namespace pumice {

// Strides, and the first element, in what is viewed.
struct StridedView {
  Strides strides;
  int64_t first = 0;
};

using StridedViews = std::optional<std::vector<StridedView>>;

// Rules for OperatorRow::views: another shape, a Transpose, and a Split.
StridedViews reshaped_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews transposed_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews split_views(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);

// The strides by which x has its axes in the order of a Transpose's `perm`, or reversed where that is absent.
Strides transposed_strides(const Attributes& transpose, const TensorDesc& x);
// Two ways to find the same elements: axes of one element do not count.
bool same_strides(const Shape& shape, const Strides& a, const Strides& b);

}  // namespace pumice
