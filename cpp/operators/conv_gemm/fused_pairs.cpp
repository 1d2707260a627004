// The table of fused pairs. All producers are convolutions and GEMMs.
#include "operators/table/fused_pairs.h"

#include "operators/conv_gemm/conv_gemm_operators.h"

namespace pumice {

namespace {

constexpr FusedPair make_softmax_pair(std::string_view producer, std::optional<Attributes> (*match)(const NodePair&)) {
  return {.fusion = "softmax",
          .producer = producer,
          .consumer = "Softmax",
          .fused = "pumice::MatMulSoftmax",
          .match = match,
          .keeps_producer_output = true};
}

}  // namespace

std::span<const FusedPair> get_fused_pairs() {
  static constexpr FusedPair pairs[] = {
      {.fusion = "pooling", .producer = "Conv", .consumer = "MaxPool", .fused = "pumice::PooledConv", .match = match_conv_max_pool},
      make_softmax_pair("Gemm", match_gemm_softmax),
      make_softmax_pair("MatMul", match_matmul_softmax),
      make_softmax_pair("pumice::MatMul", match_matmul_softmax),
  };
  return pairs;
}

}  // namespace pumice
