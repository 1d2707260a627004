// Dispatches of the GEMM and convolution kernels, shared by Conv, ConvTranspose, Gemm and MatMul.
#pragma once

#include <optional>

#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {

// Views a matrix as an image: rows are pixels, columns are channels.
NchwView make_matrix_view(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
ConvGemmParams make_gemm_params(const NchwView& a, const WeightView& b, const NchwView& y);
// Returns input 0 in the layout that the GEMM kernel reads best; sets that layout in `c`.
Operand layout_gemm_input(LowerContext& node, ConvGemmParams& c);

// Packs input `input` of 8-bit or 32-bit integers as `count` int32 values; a scalar is repeated.
void pack_as_int32(const PackContext& node, size_t input, int64_t count, PackedWeight& packed);

// Macros, bindings and push constants for Int8Params. set_zero_points() is only for GEMM.
Macros make_int8_macros(const Int8Params& integers);
void bind_zero_points(StepBuilder& step, const Int8Params& integers);
StepBuilder& set_zero_points(StepBuilder& step, const Int8Params& integers);
// Returns the zero points in input `input`, packed as in pack_as_int32(); nullopt if absent or known to be zero.
std::optional<ZeroPoints> get_zero_points(LowerContext& node, size_t input);

// Returns the packed bias from the optional input 2.
ConvGemmBias get_packed_bias(LowerContext& node);
// Adds the GEMM or convolution, split into several dispatches if it exceeds the device's grid or binding limits.
void add_conv_gemm(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                   const Operand& y);
// Adds a convolution fused with max pooling as one dispatch; the node has "pool_epilogue". Adds nothing and returns false if one dispatch
// is impossible or slower than two.
bool add_pooled_conv(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                     const Operand& y);

}  // namespace pumice
