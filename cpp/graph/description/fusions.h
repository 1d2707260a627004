// Fusions of several nodes by graph passes, by name: each can be disabled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// In the order of fusions().
enum class Fusion : uint8_t {
  integer_products,
  block_products,
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

struct FusionKind {
  std::string_view name, summary;
};
std::span<const FusionKind> fusions();
std::string_view name(Fusion fusion);

class FusionSet {
 public:
  static FusionSet all();
  static FusionSet none() { return FusionSet(0); }
  // Returns the set of these fusions. Throws Error for a name not in fusions().
  static FusionSet named(const std::vector<std::string>& names);
  bool has(Fusion fusion) const { return bits_ >> static_cast<uint32_t>(fusion) & 1; }

 private:
  explicit FusionSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

}  // namespace pumice
