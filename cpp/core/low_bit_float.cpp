#include "core/low_bit_float.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace pumice {

double LowBitFloatFormat::decode(uint32_t code) const {
  const uint32_t magnitude = code & ((1u << (exponent + mantissa)) - 1), sign = code ^ magnitude;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (specials == SpecialCodes::zero ? sign != 0 && magnitude == 0 : magnitude > largest)
    return specials == SpecialCodes::ieee && magnitude == largest + 1
               ? std::copysign(std::numeric_limits<double>::infinity(), sign != 0 ? -1.0 : 1.0)
               : nan;
  const int power = static_cast<int>(magnitude >> mantissa);
  const double fraction = magnitude & ((1u << mantissa) - 1), whole = 1u << mantissa;
  const double unit = power == 0 && has_sign ? std::ldexp(fraction / whole, 1 - bias) : std::ldexp(1 + fraction / whole, power - bias);
  return sign != 0 ? -unit : unit;
}

const LowBitFloatFormat& get_low_bit_float_format(DType dtype) {
  static constexpr LowBitFloatFormat e4m3fn{4, 3, 7, 0x7e, SpecialCodes::last}, e4m3fnuz{4, 3, 8, 0x7f, SpecialCodes::zero},
      e5m2{5, 2, 15, 0x7b, SpecialCodes::ieee}, e5m2fnuz{5, 2, 16, 0x7f, SpecialCodes::zero},
      e8m0fnu{8, 0, 127, 0xfe, SpecialCodes::last, false}, e2m1fn{2, 1, 1, 0x7, SpecialCodes::none};
  switch (dtype) {
    case DType::float8_e4m3fn:
      return e4m3fn;
    case DType::float8_e4m3fnuz:
      return e4m3fnuz;
    case DType::float8_e5m2:
      return e5m2;
    case DType::float8_e5m2fnuz:
      return e5m2fnuz;
    case DType::float8_e8m0fnu:
      return e8m0fnu;
    case DType::float4_e2m1fn:
      return e2m1fn;
    default:
      throw Error("not an fp8 or fp4 dtype: " + std::string(name(dtype)));
  }
}

}  // namespace pumice
