// Encodings of fp4 and fp8 formats. Kernels receive these values as macros (shaders/include/low_precision.glsl).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace pumice {

// Encoding of NaN and infinity. last: the largest code of either sign is NaN. zero: the code of -0 is NaN, and there is no -0. ieee: the
// largest exponent encodes infinities and NaNs. none: every code is a finite number.
enum class SpecialCodes : uint8_t { last, zero, ieee, none };

struct LowBitFloatFormat {
  int exponent, mantissa, bias;  // field widths in bits; exponent bias
  uint32_t largest;              // code of the largest finite value
  SpecialCodes specials;
  bool has_sign = true;

  double decode(uint32_t code) const;
};

const LowBitFloatFormat& get_low_bit_float_format(DType dtype);  // `dtype` must be in kLowBitFloats

}  // namespace pumice
