// Driver quirks: deviations from the Vulkan specification, or unspecified behaviour that affects results, and the engine's workarounds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "device/driver/device_info.h"

namespace pumice {

// In the order of list_quirk_kinds().
enum class Quirk : uint8_t {
  unrolled_contraction,
  loop_limit,
  inexact_division,
  inexact_square_root,
  inexact_rounding,
  inexact_unsigned,
  unfused_multiply_add,
  flushed_denormals,
  inexact_arithmetic,
  texel_overflow,
  number_for_nan,
  int64_comparison,
  other_matrix_layout,
  emulated_fragments,
  simulated_spills,
};

struct QuirkKind {
  std::string_view name, summary;
  std::string_view answer;  // describes the engine's workaround
  std::string_view test;    // the test that demonstrates the quirk
};
std::span<const QuirkKind> list_quirk_kinds();
std::string_view name(Quirk quirk);

class QuirkSet {
 public:
  QuirkSet() = default;
  explicit QuirkSet(uint32_t bits) : bits_(bits) {}
  // Returns the quirks with these names. Throws UnsupportedError for a name that is not in list_quirk_kinds().
  static QuirkSet from_names(const std::vector<std::string>& names);
  bool has(Quirk quirk) const { return bits_ >> static_cast<uint32_t>(quirk) & 1; }
  void add(Quirk quirk) { bits_ |= uint32_t{1} << static_cast<uint32_t>(quirk); }
  QuirkSet operator|(QuirkSet other) const { return QuirkSet(bits_ | other.bits_); }
  uint32_t bits() const { return bits_; }

 private:
  uint32_t bits_ = 0;
};

// Looks up a driver's quirks by VkDriverId and version. A driver trial may detect more quirks; the caller adds them.
QuirkSet find_known_quirks(const DeviceInfo& device);

}  // namespace pumice
