// Splits fp32 into two fp16 for cooperative matrices: x = hi + lo / kLoScale. With the largest magnitude of a row or matrix scaled to
// [2^14, 2^15), the relative error is at most 2^-23 for magnitudes down to 2^-14, where hi becomes subnormal.
#ifndef PM_SPLIT_FP16_GLSL
#define PM_SPLIT_FP16_GLSL
const float kLoScale = 4096.0;  // the error of hi is at most 2^3, so kLoScale times it is in fp16 range

float power_of_two(int exponent) { return uintBitsToFloat(uint(exponent + 127) << 23); }

// Rounds |x| <= 2^15 to fp16 and returns it as float. packHalf2x16() may round differently, but keeps such a value exactly.
float round_to_fp16(float x) {
  const float least = 6.103515625e-05, step = 16777216.0;  // smallest normal fp16, and 1 / the subnormal step
  const uint bits = floatBitsToUint(x);
  if (abs(x) < least) return roundEven(x * step) / step;
  return uintBitsToFloat((bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u);
}

// Returns lo: the rounding error of `high`, multiplied by kLoScale.
float fp16_remainder(float x, float high) { return round_to_fp16((x - high) * kLoScale); }
#endif
