// Operators that only change shape and strides: their outputs are views of the input's memory.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"

namespace pumice {

// Strides and first element of a view, in the viewed tensor.
struct StridedView {
  Strides strides;
  int64_t first = 0;
};

using StridedViews = std::optional<std::vector<StridedView>>;

// Rules for OperatorRow::views: reshape, Transpose and Split.
StridedViews reshape_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews transpose_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews split_views(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);

// Strides of x with axes ordered by a Transpose's `perm`, or reversed if it is absent.
Strides transpose_strides(const Attributes& transpose, const TensorDesc& x);
// Whether both strides address the same elements. Axes of size 1 are ignored.
bool same_strides(const Shape& shape, const Strides& a, const Strides& b);

}  // namespace pumice
