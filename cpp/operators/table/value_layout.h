// Layouts of values inside a program: row-major, or channels-last for images between operators that accept any strides.
#pragma once

#include "core/tensor_desc.h"
#include "operators/table/operator_table.h"

namespace pumice {

// Whether the operator's kernels read an input, or write an output, with arbitrary strides.
bool accepts_strided_input(const OperatorRow& row, size_t input);
bool writes_strided_output(const OperatorRow& row, size_t output);

// Whether the operator's kernels read or write images (rank 3 and 4) channels-last as well as row-major. This need not hold for its
// weights.
bool accepts_any_layout(const OperatorRow& row, size_t input);
bool writes_any_layout(const OperatorRow& row, size_t output);

// Whether the channels form aligned vec4s in channels-last layout. The GEMM, convolution and window kernels are fastest with these.
bool fits_channels_last(DType dtype, const Shape& shape);
Strides make_channels_last_strides(const Shape& shape);

}  // namespace pumice
