// Attributes, shape rules and checks shared by the convolution and GEMM operators.
#pragma once

#include "operators/table/row_builders.h"

namespace pumice {

std::vector<AttributeSchema> make_conv_attributes();

Shape make_image_shape(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial);
// Returns the output shape for input 0 and the weights in input `weights`. Throws GraphError if they do not match.
Shape compute_conv_shape(ShapeContext& node, size_t weights);
// Checks that `channels` is divisible by the number of groups.
void check_groups(const ShapeContext& node, int64_t channels, std::string_view label);

// Whether Conv + MaxPool (pumice::PooledConv) or GEMM + Softmax (pumice::MatMulSoftmax) can be fused for these weights: see OperatorRow.
bool conv_supports_pool(const Attributes& attributes, const TensorDesc& weights, const PoolWindow& pool);
bool gemm_supports_softmax(const Attributes& attributes, const TensorDesc& weights, const Shape* bias);
bool matmul_supports_softmax(const Attributes& attributes, const TensorDesc& weights, const Shape* bias);

}  // namespace pumice
