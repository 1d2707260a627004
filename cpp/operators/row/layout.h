// Which layout a value inside a program has: row-major, or channels-last for images between operators that read any strides.
#pragma once

#include "core/tensor_desc.h"
#include "operators/row/operator_table.h"

namespace pumice {

// The row's kernels take an input, or make an output, of any strides.
bool takes_strides(const OperatorRow& row, size_t input);
bool makes_strides(const OperatorRow& row, size_t output);

// The row's kernels read, or make, images (rank 3 and 4) channels last as well as row-major. An operator that takes such images need not
// take such weights.
bool takes_any_layout(const OperatorRow& row, size_t input);
bool makes_any_layout(const OperatorRow& row, size_t output);

// Channels are neighbours in memory, four to an aligned vector: what the contraction and window kernels are fastest with.
bool suits_channels_last(DType dtype, const Shape& shape);
Strides channels_last_strides(const Shape& shape);

}  // namespace pumice
