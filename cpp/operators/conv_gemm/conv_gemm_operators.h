// Attributes, shape rules and checks shared by the convolution and GEMM operators.
#pragma once

#include "operators/table/fused_pairs.h"
#include "operators/table/row_builders.h"

namespace pumice {

std::vector<AttributeSchema> make_conv_attributes();

Shape make_image_shape(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial);
// Returns the output shape for input 0 and the weights in input `weights`. Throws GraphError if they do not match.
Shape compute_conv_shape(ShapeContext& node, size_t weights);
// Checks that `channels` is divisible by the number of groups.
void check_groups(const ShapeContext& node, int64_t channels, std::string_view label);

// Rows of the table of fused pairs: see FusedPair.
std::optional<Attributes> match_conv_max_pool(const NodePair& pair);
std::optional<Attributes> match_gemm_softmax(const NodePair& pair);
std::optional<Attributes> match_matmul_softmax(const NodePair& pair);

}  // namespace pumice
