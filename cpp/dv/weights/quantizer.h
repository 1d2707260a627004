// Weights as indices of 8 bits into a table of float16.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dv/weights/packing.h"

namespace pumice::dv {

using Table = std::array<uint16_t, kTableEntries>;

// The table of 255 values that has the least sum of squared errors, of weights rounded to float16, in ascending order from entry 1 on; the
// values are rounded to float16 then, and each weight takes the nearest. Entry 0 is 0.0, which weights of exactly 0 take. Entries that no
// weight needs are 0.0. Throws BindingError (D7) for weights that float16 does not hold: NaN, infinity, magnitudes of 65520 and above.
Table quantize_weights(std::span<const float> weights, std::span<uint8_t> indices);

}  // namespace pumice::dv
