// Lowerings, packing functions and host evaluations of the GEMM and convolution operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_conv(LowerContext& node);
void lower_conv_transpose(LowerContext& node);
void lower_pooled_conv(LowerContext& node);
void lower_matmul_softmax(LowerContext& node);
void lower_grouped_conv(LowerContext& node);
void lower_gemm(LowerContext& node);
void lower_matmul(LowerContext& node);
void lower_matmul_integer(LowerContext& node);
void lower_conv_integer(LowerContext& node);
void lower_qlinear_matmul(LowerContext& node);
void lower_qlinear_conv(LowerContext& node);
void lower_einsum(LowerContext& node);
void lower_determinant(LowerContext& node);
// Returns the attributes of the max pooling that is fused in pumice::PooledConv.
Attributes make_pool_attributes(const Attributes& attributes);
bool pack_conv(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_grouped_conv(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_conv_transpose(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_matmul_softmax(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_gemm(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_matmul(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_matmul_integer(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_conv_integer(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_qlinear_matmul(const PackContext& node, size_t input, PackedWeight& packed);
bool pack_qlinear_conv(const PackContext& node, size_t input, PackedWeight& packed);

}  // namespace pumice
