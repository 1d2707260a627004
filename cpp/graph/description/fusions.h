// Fusions performed by graph passes. Each has a name and can be disabled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// All fusions, in the order of list_fusions().
enum class Fusion : uint8_t {
  qlinear,
  block_quant,
  batch_normalization,
  crop,
  attention,
  gelu,
  swish,
  layer_normalization,
  rms_normalization,
  recurrent,
  bias,
  epilogue,
  residual,
  pooling,
  softmax,
  elementwise
};

struct FusionDescription {
  std::string_view name, summary;
};
std::span<const FusionDescription> list_fusions();
std::string_view name(Fusion fusion);
Fusion get_fusion(std::string_view name);  // throws Error for an unknown name

class FusionSet {
 public:
  static FusionSet all();
  static FusionSet none() { return FusionSet(0); }
  // Returns the set of the fusions with these names. Throws Error for an unknown name.
  static FusionSet from_names(const std::vector<std::string>& names);
  bool has(Fusion fusion) const { return bits_ >> static_cast<uint32_t>(fusion) & 1; }

 private:
  explicit FusionSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

}  // namespace pumice
