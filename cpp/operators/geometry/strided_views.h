// Operators that only change shape and strides: their outputs are views of the input's memory.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"

namespace pumice {

// A view: its strides and the index of its first element, both in elements of the viewed tensor.
struct StridedView {
  Strides strides;
  int64_t first = 0;
};

using StridedViews = std::optional<std::vector<StridedView>>;

// Functions for OperatorRow::views. They return nullopt if the outputs cannot be views of x.
StridedViews make_reshape_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews make_transpose_view(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);
StridedViews make_split_views(const Attributes& attributes, const TensorDesc& x, const std::vector<const TensorDesc*>& outputs);

// Returns the strides of x after a Transpose with the attributes `transpose`. Without the attribute "perm", the axes are reversed.
Strides compute_transpose_strides(const Attributes& transpose, const TensorDesc& x);
// Whether strides `a` and `b` address the same elements. Axes of size 1 are ignored.
bool have_same_strides(const Shape& shape, const Strides& a, const Strides& b);

}  // namespace pumice
