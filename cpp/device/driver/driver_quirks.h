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
  wrong_subgroup_size,
  wrong_shuffle,
  wrong_subgroup_arithmetic,
  wrong_ballot,
  wrong_8bit_storage,
  wrong_16bit_storage,
  wrong_float16,
  wrong_int16,
  wrong_int8,
  wrong_int64,
  wrong_int64_atomics,
  wrong_float64,
  wrong_float_atomics,
  wrong_dot_product,
  wrong_matrices,
  wrong_conditional_rendering,
  small_workgroups,
  small_shared_memory,
  short_push_constants,
  coarse_offsets,
  wrong_integers,
  wrong_workgroups,
  wrong_atomics,
  wrong_grids,
  missing_barriers,
  wrong_transfers,
  attention_crash,
};

struct QuirkKind {
  std::string_view name, summary;
  std::string_view answer;  // describes the engine's workaround
  std::string_view test;    // the test that demonstrates the quirk
  // What a context with the quirk does not use: names of features, separated by spaces, and the part of a limit above this value (below,
  // for a limit that begins with "min").
  std::string_view features = {};
  std::string_view limit = {};
  uint64_t max_limit = 0;
  bool is_fatal = false;  // the engine's kernels are refused
};
std::span<const QuirkKind> list_quirk_kinds();
std::string_view name(Quirk quirk);

class QuirkSet {
 public:
  QuirkSet() = default;
  explicit QuirkSet(uint64_t bits) : bits_(bits) {}
  // Returns the quirks with these names. Throws UnsupportedError for a name that is not in list_quirk_kinds().
  static QuirkSet from_names(const std::vector<std::string>& names);
  bool has(Quirk quirk) const { return bits_ >> static_cast<uint32_t>(quirk) & 1; }
  void add(Quirk quirk) { bits_ |= uint64_t{1} << static_cast<uint32_t>(quirk); }
  QuirkSet operator|(QuirkSet other) const { return QuirkSet(bits_ | other.bits_); }
  uint64_t bits() const { return bits_; }

 private:
  uint64_t bits_ = 0;
};

// Looks up a driver's quirks by VkDriverId and version. A driver trial may detect more quirks; the caller adds them.
QuirkSet find_known_quirks(const DeviceInfo& device);

}  // namespace pumice
