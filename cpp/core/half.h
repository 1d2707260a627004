// Conversions between fp32 and fp16/bf16: round to nearest even, NaN stays NaN, overflow gives infinity.
#pragma once

#include <cstdint>

namespace pumice {

uint16_t half_from_float(float value);
float float_from_half(uint16_t bits);
uint16_t bfloat16_from_float(float value);
float float_from_bfloat16(uint16_t bits);

}  // namespace pumice
