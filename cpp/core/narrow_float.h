// Floats of 4 and 8 bits: what their codes mean. Kernels are given these facts as macros (shaders/include/narrow.glsl).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace pumice {

// The codes of a format that stand for no finite number. last: NaN is the last code of either sign. zero: NaN is the code of -0, and there
// is no -0. ieee: infinities and NaNs have the last exponent. none: every code is a number.
enum class NarrowSpecials : uint8_t { last, zero, ieee, none };

struct NarrowFormat {
  int exponent, mantissa, bias;  // bits, bits, and what is added to the exponent of a number
  uint32_t largest;              // the code of the largest finite number
  NarrowSpecials specials;
  bool has_sign = true;

  double value(uint32_t code) const;
};

const NarrowFormat& narrow_format(DType dtype);  // for dtypes of kNarrowFloats

}  // namespace pumice
