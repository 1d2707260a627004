// The table of fused pairs. All producers are convolutions and GEMMs.
#include "operators/table/fused_pairs.h"

#include "operators/conv_gemm/conv_gemm_operators.h"

namespace pumice {

std::span<const FusedPair> get_fused_pairs() {
  static constexpr FusedPair pairs[] = {
      {.fusion = "pooling", .producer = "Conv", .consumer = "MaxPool", .fused = "pumice::PooledConv", .match = match_conv_max_pool},
      {.fusion = "softmax",
       .producer = "Gemm",
       .consumer = "Softmax",
       .fused = "pumice::MatMulSoftmax",
       .match = match_gemm_softmax,
       .keeps_producer_output = true},
      {.fusion = "softmax",
       .producer = "MatMul",
       .consumer = "Softmax",
       .fused = "pumice::MatMulSoftmax",
       .match = match_matmul_softmax,
       .keeps_producer_output = true},
      {.fusion = "softmax",
       .producer = "pumice::MatMul",
       .consumer = "Softmax",
       .fused = "pumice::MatMulSoftmax",
       .match = match_matmul_softmax,
       .keeps_producer_output = true},
  };
  return pairs;
}

}  // namespace pumice
