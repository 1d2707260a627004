// Attributes, shapes and checks that the rows of convolutions and products share.
#pragma once

#include "operators/row/row_parts.h"

namespace pumice {

std::vector<AttributeSchema> conv_attributes();

Shape image_shape(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial);
// The shape that input 0 and the weights at input `weights` give. GraphError where these do not fit.
Shape conv_shape(ShapeContext& node, size_t weights);
// `channels` must divide into groups.
void check_groups(const ShapeContext& node, int64_t channels, std::string_view what);

// Whether the kernels of pumice::PooledConv and pumice::ProductSoftmax take what their rows are made of: see OperatorRow.
bool conv_takes_pool(const Attributes& attributes, const TensorDesc& weights, const PoolWindow& pool);
bool gemm_takes_softmax(const Attributes& attributes, const TensorDesc& weights, const Shape* bias);
bool matmul_takes_softmax(const Attributes& attributes, const TensorDesc& weights, const Shape* bias);

}  // namespace pumice
