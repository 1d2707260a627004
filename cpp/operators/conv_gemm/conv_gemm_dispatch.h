// Dispatches of the GEMM and convolution kernels, shared by Conv, ConvTranspose, Gemm and MatMul.
#pragma once

#include <optional>

#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {

// Describes matrix rows as the pixels of an image.
Planes matrix_planes(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
ConvGemm make_gemm(const Planes& a, const WeightView& b, const Planes& y);
// Returns input 0 in the layout that the GEMM kernel reads best; sets that layout in `c`.
Operand layout_gemm_input(LowerContext& node, ConvGemm& c);

// Packs input `input` of 8-bit or 32-bit integers as `count` int32 values; a scalar is repeated.
void pack_as_int32(const PackContext& node, size_t input, int64_t count, PackedWeight& packed);

// Macros and bindings for Int8Params, and the strides of row and column zero points in matrix products.
Macros int8_macros(const Int8Params& integers);
void bind_zero_points(StepBuilder& step, const Int8Params& integers);
StepBuilder& set_zero_points(StepBuilder& step, const Int8Params& integers);
// Returns the zero points in input `input`, packed as in pack_as_int32(); nullopt if absent or known to be zero.
std::optional<ZeroPoints> zero_points(LowerContext& node, size_t input);

// Returns the packed bias from the optional input 2.
ConvGemmBias bias_of(LowerContext& node);
// Adds the contraction, split into several dispatches if it exceeds the device's grid or binding limits.
void add_conv_gemm(LowerContext& node, const ConvGemm& c, const Operand& x, const Operand& w, const ConvGemmBias& bias, const Operand& y);
// Adds a convolution fused with max pooling as one dispatch; the node has "pool_epilogue". Adds nothing and returns false if one dispatch
// is impossible or slower than two.
bool add_pooled_conv(LowerContext& node, const ConvGemm& c, const Operand& x, const Operand& w, const ConvGemmBias& bias, const Operand& y);

}  // namespace pumice
