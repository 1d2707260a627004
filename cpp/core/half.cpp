#include "core/half.h"

#include <bit>

namespace pumice {

uint16_t half_from_float(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value), magnitude = word & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));  // quiet NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;                                                    // 65520 and above round to infinity
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal in steps of 2^-24; the float addition rounds to nearest even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rebased = magnitude - 0x38000000;  // 112 = 127 - 15, the difference of the exponent biases
  return static_cast<uint16_t>(sign | ((rebased + 0xfff + (rebased >> 13 & 1)) >> 13));
}

float float_from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
}

uint16_t bfloat16_from_float(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  if ((word & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(word >> 16 | 0x40);  // quiet NaN
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

float float_from_bfloat16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

}  // namespace pumice
