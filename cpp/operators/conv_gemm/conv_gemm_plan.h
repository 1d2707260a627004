// Selects the kernel and tile of a GEMM or convolution: the engine's default, or a variant measured on the device.
#pragma once

#include <string>
#include <string_view>

#include "operators/conv_gemm/kernel_plan.h"

namespace pumice {

ConvGemmPlan select_conv_gemm_plan(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);

// Whether to fuse a convolution with its max pooling: a kernel supports the fusion, and separate kernels are not faster.
bool prefers_fused_pool(const LowerContext& node, const ConvGemmParams& c, int64_t pixels);

// format_gemm_kind() returns the step kind, for tuning, of a GEMM whose constant matrix can be packed in several orders.
// parse_weight_order() returns the order that a variant's name implies.
std::string format_gemm_kind(const NodeContext& node, int64_t m, int64_t k, int64_t n);
inline WeightOrder parse_weight_order(std::string_view variant) {
  if (variant.starts_with("gemm_mma ")) return WeightOrder::fragments;
  if (variant.starts_with("gemm_split_fp16 ")) return WeightOrder::split_fp16;
  return variant.starts_with("gemv_col_major") ? WeightOrder::col_major : WeightOrder::blocks;
}

}  // namespace pumice
