// Quantizes weights to 8-bit indices into a float16 table.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dv/weights/packing.h"

namespace pumice::dv {

using Table = std::array<uint16_t, kTableEntries>;

// Returns the 255-entry table with the least sum of squared errors over the weights (rounded to float16), ascending from entry 1. The
// entries are then rounded to float16, and each weight is assigned the nearest one. Entry 0 is 0.0, for weights that are exactly 0. Unused
// entries are 0.0. Throws BindingError (D7) for weights that float16 cannot represent: NaN, infinity, magnitudes of 65520 and above.
Table quantize_weights(std::span<const float> weights, std::span<uint8_t> indices);

}  // namespace pumice::dv
