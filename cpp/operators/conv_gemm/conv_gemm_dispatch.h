// Adds dispatches of the GEMM and convolution kernels. Shared by Conv, ConvTranspose, Gemm and MatMul.
#pragma once

#include <optional>

#include "operators/conv_gemm/conv_gemm_params.h"
#include "operators/conv_gemm/weight_packing.h"

namespace pumice {

// Views a matrix as an image: rows are pixels, columns are channels.
NchwView make_matrix_view(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
ConvGemmParams make_gemm_params(const NchwView& a, const WeightView& b, const NchwView& y);
// Returns input 0, copied to the layout that the GEMM kernel reads fastest if that pays off. Describes the layout in `c`.
Operand prepare_gemm_input(LowerContext& node, ConvGemmParams& c);

// Packs an input of 8-bit or 32-bit integers as `count` int32 values. A scalar is repeated.
void pack_as_int32(const PackContext& node, size_t input, int64_t count, PackedWeight& packed);

// Set up a kernel for Int8Params: its macros, bindings and push constants. set_zero_points() is only for GEMM.
Macros make_int8_macros(const Int8Params& integers);
void bind_zero_points(StepBuilder& step, const Int8Params& integers);
StepBuilder& set_zero_points(StepBuilder& step, const Int8Params& integers);
// Returns the zero points in input `input`, packed by pack_as_int32(). Returns nullopt if they are absent or known to be zero.
std::optional<ZeroPoints> get_zero_points(LowerContext& node, size_t input);

// Returns the bias in the optional input 2, packed per channel.
ConvGemmBias get_packed_bias(LowerContext& node);
// Adds a GEMM or convolution, split into several dispatches if it exceeds the device's grid or binding limits.
void add_conv_gemm(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                   const Operand& y);
// Adds a convolution with fused max pooling as one dispatch. The node has the attribute "pool_epilogue". Adds nothing and returns false if
// one dispatch is not possible or is slower than separate convolution and pooling.
bool add_pooled_conv(LowerContext& node, const ConvGemmParams& c, const Operand& x, const Operand& w, const ConvGemmBias& bias,
                     const Operand& y);

}  // namespace pumice
