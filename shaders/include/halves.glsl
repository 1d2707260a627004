// Numbers of float32 as sums of two halves, which matrix units multiply: high + low / kLow. Scaled so that the largest of a row, or of a
// matrix, is at least 2^14 and below 2^15, a number is off by at most 2^-23 of itself down to 2^-14, below which high halves are no normal numbers.
#ifndef PM_HALVES_GLSL
#define PM_HALVES_GLSL
const float kLow = 4096.0;  // a half is off by at most 2^3 there, so that the rest times this is a half too

float power_of_two(int exponent) { return uintBitsToFloat(uint(exponent + 127) << 23); }

// The nearest half of a number that is no larger than 2^15, as a float: packHalf2x16() may round otherwise, and keeps this as it is.
float nearest_half(float x) {
  const float least = 6.103515625e-05, step = 16777216.0;  // the smallest normal half, and how many steps of those below it make 1
  const uint bits = floatBitsToUint(x);
  if (abs(x) < least) return roundEven(x * step) / step;
  return uintBitsToFloat((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

// What the nearest half leaves of a number.
float low_half(float x, float high) { return nearest_half((x - high) * kLow); }
#endif
