// Comparisons of 64-bit integers with constants on drivers that compile them wrong (Quirk::int64_comparison).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice::spirv {

// Compares the complements instead: a < b becomes ~a > ~b if one of them is a constant of 64 bits, or a vector of those.
std::vector<uint32_t> with_complemented_comparisons(std::span<const uint32_t> module);

}  // namespace pumice::spirv
