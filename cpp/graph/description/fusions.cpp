#include "graph/description/fusions.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace pumice {
namespace {

constexpr std::array kFusions = {
    FusionKind{"integer_products", "Conv and MatMul between DequantizeLinear and QuantizeLinear become products of integers."},
    FusionKind{"block_products",
               "Products with weights of 4 or 8 bits in blocks read them as they are stored, and normalise what they multiply."},
    FusionKind{"batch_normalization", "BatchNormalization becomes part of the weights of the convolution before it."},
    FusionKind{"crop", "A Slice that takes constant borders off what a ConvTranspose makes becomes a part of its pads."},
    FusionKind{
        "attention",
        "Products, scale, mask and Softmax become one attention, with the transpositions around it; rotary embedding and caches one node."},
    FusionKind{"gelu", "Gelu written out, by Erf or by Tanh."},
    FusionKind{"swish", "x * Sigmoid(alpha * x)."},
    FusionKind{"layer_normalization", "LayerNormalization written out."},
    FusionKind{"rms_normalization", "RMSNormalization written out."},
    FusionKind{"recurrent", "LSTM, GRU and RNN of both directions read and make their states and results apart for each, or side by side."},
    FusionKind{"bias", "A number for each column is added by the product itself."},
    FusionKind{"epilogue", "Maps of one varying operand are applied by the kernel that makes it, before it stores."},
    FusionKind{
        "residual",
        "A second tensor is added, or otherwise mapped with the result, by the product, convolution or normalization that stores; or a "
        "second product is."},
    FusionKind{"pooling", "The largest elements of windows that lie side by side are found by the convolution that makes these."},
    FusionKind{"softmax", "Softmax of a matrix of few columns is made by the product that makes these."},
    FusionKind{"elementwise", "Maps of maps become one map."},
};
static_assert(kFusions.size() == static_cast<size_t>(Fusion::elementwise) + 1);

}  // namespace

std::span<const FusionKind> fusions() {
  return kFusions;
}

std::string_view name(Fusion fusion) {
  return kFusions[static_cast<size_t>(fusion)].name;
}

FusionSet FusionSet::all() {
  return FusionSet((uint32_t{1} << kFusions.size()) - 1);
}

FusionSet FusionSet::named(const std::vector<std::string>& names) {
  uint32_t bits = 0;
  for (const std::string& name : names) {
    const auto match = std::ranges::find(kFusions, name, &FusionKind::name);
    if (match == kFusions.end()) {
      std::string all;
      for (const FusionKind& kind : kFusions) all += (all.empty() ? "" : ", ") + std::string(kind.name);
      throw Error("fuse: the names of fusions expected, " + all + "; given '" + name + "'");
    }
    bits |= uint32_t{1} << (match - kFusions.begin());
  }
  return FusionSet(bits);
}

}  // namespace pumice
