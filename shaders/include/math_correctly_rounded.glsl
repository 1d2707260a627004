// Correctly rounded division and square root on every device. Part of math.glsl.

// Returns a * b as an unevaluated sum with `rest`, for |a|, |b| in 2^-60 .. 2^60; correct with and without fma.
float pm_exact_product(float a, float b, out float rest) {
  precise float high_a = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u), low_a = a - high_a;
  precise float high_b = uintBitsToFloat(floatBitsToUint(b) & 0xfffff000u), low_b = b - high_b;
  precise float product = a * b;
  precise float error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
  rest = error;
  return product;
}

// IEEE 754 division and square root. PM_CORRECT_DIVISION, PM_CORRECT_ROOT: the device's results are off by a few ulp and are corrected by
// the remainder. PM_UNFUSED: fma() rounds the product.
#if PM_CORRECT_DIVISION || PM_CORRECT_ROOT
// a - q b, exact if small relative to a; all operands are in 1/2 .. 4.
float pm_division_remainder(float a, float q, float b) {
#if PM_UNFUSED
  float rest;
  precise float product = pm_exact_product(q, b, rest), left = (a - product) - rest;
#else
  precise float left = fma(-q, b, a);
#endif
  return left;
}
// Splits a nonzero magnitude into exponent and mantissa in [1, 2).
int pm_split_float(uint magnitude, out float mantissa) {
  const int shift = magnitude < 0x00800000u ? 23 - findMSB(magnitude) : 0;
  magnitude <<= shift;
  mantissa = uintBitsToFloat((magnitude & 0x007fffffu) | 0x3f800000u);
  return shift > 0 ? -126 - shift : int(magnitude >> 23) - 127;
}
#endif
#if PM_CORRECT_DIVISION
// Returns the bits of m 2^e for m in 1/2 .. 2, correctly rounded. `left` is positive if the exact value is above m, negative if it is
// below.
uint pm_assemble_float(float m, int e, float left) {
  const uint bits = floatBitsToUint(m);
  const int exponent = int(bits >> 23) + e, shift = 2 - exponent;
  uint whole = ((bits & 0x007fffffu) | 0x00800000u) << 1;
  whole = left > 0.0 ? whole + 1u : left < 0.0 ? whole - 1u : whole;
  const int by = clamp(shift, 1, 27);
  const uint rest = whole & (1u << by) - 1u, middle = 1u << by - 1;
  whole >>= by;
  whole = rest > middle || (rest == middle && (whole & 1u) != 0u) ? whole + 1u : whole;
  return exponent > 254 ? 0x7f800000u : exponent > 0 ? bits + (uint(e) << 23) : shift > 26 ? 0u : whole;
}
float pm_divide(float a, float b) {
  const uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  const uint size_a = floatBitsToUint(a) & 0x7fffffffu, size_b = floatBitsToUint(b) & 0x7fffffffu;
  uint quotient;
  if (size_a > 0x7f800000u || size_b > 0x7f800000u || (size_a == size_b && (size_a == 0u || size_a == 0x7f800000u))) {
    quotient = 0x7fc00000u;
  } else if (size_a == 0x7f800000u || size_b == 0u) {
    quotient = sign | 0x7f800000u;
  } else if (size_a == 0u || size_b == 0x7f800000u) {
    quotient = sign;
  } else {
    float m, n;
    const int e = pm_split_float(size_a, m) - pm_split_float(size_b, n);
    precise float q = m / n;
    q = q + pm_division_remainder(m, q, n) / n;
    const float max_remainder = n * (q < 1.0 ? 2.98023224e-08 : 5.96046448e-08);  // remainder if q is off by half an ulp
    float left = pm_division_remainder(m, q, n);
    if (abs(left) > max_remainder) q = uintBitsToFloat(left > 0.0 ? floatBitsToUint(q) + 1u : floatBitsToUint(q) - 1u);
    left = pm_division_remainder(m, q, n);
    quotient = sign | pm_assemble_float(q, e, left);
  }
  return uintBitsToFloat(quotient);
}
#else
float pm_divide(float a, float b) {
  precise float q = a / b;
  return q;
}
#endif
#if PM_CORRECT_ROOT
float pm_sqrt(float x) {
  const uint size = floatBitsToUint(x) & 0x7fffffffu;
  float m;
  const int e = pm_split_float(max(size, 1u), m);
  m = (e & 1) == 0 ? m : m + m;
  precise float s = sqrt(m);
  s = s + pm_division_remainder(m, s, s) * 0.5 / s;
  const float left = pm_division_remainder(m, s, s), max_remainder = s * 1.1920929e-07;  // remainder if s is off by half an ulp
  if (left > max_remainder) s = uintBitsToFloat(floatBitsToUint(s) + 1u);
  if (left <= -max_remainder) s = uintBitsToFloat(floatBitsToUint(s) - 1u);
  const bool is_nan = size > 0x7f800000u || (size != 0u && floatBitsToUint(x) != size);
  return is_nan ? pm_nan : size == 0u || size == 0x7f800000u ? x : uintBitsToFloat(floatBitsToUint(s) + (uint(e >> 1) << 23));
}
#else
float pm_sqrt(float x) {
  precise float s = sqrt(x);
  return s;
}
#endif
