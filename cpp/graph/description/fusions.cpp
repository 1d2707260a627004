#include "graph/description/fusions.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace pumice {
namespace {

constexpr std::array kFusions = {
    FusionDescription{"qlinear", "Conv and MatMul between DequantizeLinear and QuantizeLinear become int8 GEMMs."},
    FusionDescription{"block_quant",
                      "A MatMul reads its block-quantised 4- or 8-bit weights as stored, and applies the RMSNorm of its input."},
    FusionDescription{"batch_normalization", "BatchNormalization is folded into the weights of the convolution before it."},
    FusionDescription{"crop", "A Slice that crops the output of a ConvTranspose becomes part of its pads."},
    FusionDescription{
        "attention",
        "MatMul, scale, mask and Softmax become one attention, including transposes; rotary embedding and KV caches one node."},
    FusionDescription{"gelu", "Gelu written with Erf or Tanh becomes one node."},
    FusionDescription{"swish", "x * Sigmoid(alpha * x) becomes one node."},
    FusionDescription{"layer_normalization", "LayerNormalization written with primitive operators becomes one node."},
    FusionDescription{"rms_normalization", "RMSNormalization written with primitive operators becomes one node."},
    FusionDescription{"recurrent",
                      "Bidirectional LSTM, GRU and RNN read and write the states of each direction, separate or concatenated."},
    FusionDescription{"bias", "A per-column bias is added by the GEMM."},
    FusionDescription{"epilogue", "Elementwise operators on one varying operand run in the epilogue of the kernel that computes it."},
    FusionDescription{"residual",
                      "A second tensor, or a second GEMM, is added or otherwise combined in the epilogue of a GEMM, convolution or "
                      "normalization."},
    FusionDescription{"pooling", "A convolution computes the MaxPool of its output if the windows do not overlap."},
    FusionDescription{"softmax", "A GEMM with few columns computes the Softmax of its rows."},
    FusionDescription{"elementwise", "Chains of elementwise operators become one kernel."},
};
static_assert(kFusions.size() == static_cast<size_t>(Fusion::elementwise) + 1);

}  // namespace

std::span<const FusionDescription> list_fusions() {
  return kFusions;
}

std::string_view name(Fusion fusion) {
  return kFusions[static_cast<size_t>(fusion)].name;
}

Fusion get_fusion(std::string_view name) {
  const auto match = std::ranges::find(kFusions, name, &FusionDescription::name);
  if (match == kFusions.end()) {
    std::string all;
    for (const FusionDescription& kind : kFusions) all += (all.empty() ? "" : ", ") + std::string(kind.name);
    throw Error("fuse: expected the names of fusions, " + all + "; given '" + std::string(name) + "'");
  }
  return static_cast<Fusion>(match - kFusions.begin());
}

FusionSet FusionSet::all() {
  return FusionSet((uint32_t{1} << kFusions.size()) - 1);
}

FusionSet FusionSet::from_names(const std::vector<std::string>& names) {
  uint32_t bits = 0;
  for (const std::string& name : names) bits |= uint32_t{1} << static_cast<uint32_t>(get_fusion(name));
  return FusionSet(bits);
}

}  // namespace pumice
