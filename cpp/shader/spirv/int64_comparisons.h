// Rewrites comparisons of 64-bit integers with constants for drivers that compile them wrong (Quirk::int64_comparison).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice::spirv {

// Compares the complements instead: a < b becomes ~a > ~b if a or b is a 64-bit constant or a vector of such constants.
std::vector<uint32_t> complement_int64_comparisons(std::span<const uint32_t> module);

}  // namespace pumice::spirv
