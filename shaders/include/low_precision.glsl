// Packed storage of 2, 4 and 8-bit elements, the first in the low bits; arithmetic is done in wider types. Float formats follow
// core/low_bit_float.h and are described by macros: LOW_PRECISION_EXPONENT, LOW_PRECISION_MANTISSA (bits), LOW_PRECISION_BIAS,
// LOW_PRECISION_MAX_CODE (code of the largest finite value), LOW_PRECISION_SPECIALS (0: NaN is the last code; 1: NaN is -0; 2: infinities
// and NaNs use the last exponent; 3: none), LOW_PRECISION_HAS_SIGN. LOW_PRECISION_BITS: bits per element.
#ifndef PM_LOW_PRECISION_GLSL
#define PM_LOW_PRECISION_GLSL

#define LOW_PRECISION_PER_WORD (32u / uint(LOW_PRECISION_BITS))
#define LOW_PRECISION_LOAD(x, i) (x[(i) / LOW_PRECISION_PER_WORD] >> (i) % LOW_PRECISION_PER_WORD * uint(LOW_PRECISION_BITS) & (1u << LOW_PRECISION_BITS) - 1u)

#ifdef LOW_PRECISION_EXPONENT
const uint LOW_PRECISION_MAGNITUDE = (1u << LOW_PRECISION_EXPONENT + LOW_PRECISION_MANTISSA) - 1u;

// Decodes a code to the bits of a float32.
uint pm_decode_low_precision(uint code) {
  const uint magnitude = code & LOW_PRECISION_MAGNITUDE, sign = code & ~LOW_PRECISION_MAGNITUDE;
#if LOW_PRECISION_SPECIALS == 1
  if (sign != 0u && magnitude == 0u) return 0x7fc00000u;
#else
  if (magnitude > LOW_PRECISION_MAX_CODE) {
    const bool is_infinite = LOW_PRECISION_SPECIALS == 2 && magnitude == LOW_PRECISION_MAX_CODE + 1u;
    return (is_infinite ? 0x7f800000u : 0x7fc00000u) | (sign != 0u ? 0x80000000u : 0u);
  }
#endif
  const uint exponent = magnitude >> LOW_PRECISION_MANTISSA, fraction = magnitude & (1u << LOW_PRECISION_MANTISSA) - 1u;
  uint bits = exponent + uint(127 - LOW_PRECISION_BIAS) << 23 | fraction << 23 - LOW_PRECISION_MANTISSA;
#if LOW_PRECISION_HAS_SIGN
  if (exponent == 0u) bits = floatBitsToUint(float(fraction) * uintBitsToFloat(uint(128 - LOW_PRECISION_BIAS - LOW_PRECISION_MANTISSA) << 23));
#else
  if (exponent == 0u) bits = 0x400000u;
#endif
  return bits | (sign != 0u ? 0x80000000u : 0u);
}

// Encodes the bits of a float32, rounding to nearest even. Formats without sign (and mantissa) encode the magnitude; ROUND 1 rounds up, 2
// down, 3 to nearest with ties up. Overflow saturates if `saturate` is set, and otherwise gives infinity or NaN.
uint pm_encode_low_precision(uint bits, bool saturate) {
  const uint magnitude = bits & 0x7fffffffu;
  const uint sign = LOW_PRECISION_HAS_SIGN != 0 ? bits >> 31 << LOW_PRECISION_EXPONENT + LOW_PRECISION_MANTISSA : 0u;
#if LOW_PRECISION_SPECIALS == 0
  const uint nan = LOW_PRECISION_MAX_CODE + 1u | sign;
#elif LOW_PRECISION_SPECIALS == 1
  const uint nan = LOW_PRECISION_MAGNITUDE + 1u;
#elif LOW_PRECISION_SPECIALS == 2
  const uint nan = LOW_PRECISION_MAX_CODE + 1u | 1u << LOW_PRECISION_MANTISSA - 1 | sign;
#else
  const uint nan = sign ^ LOW_PRECISION_MAGNITUDE + 1u;  // 0: no NaN
#endif
  if (magnitude > 0x7f800000u) return nan;
#if !LOW_PRECISION_HAS_SIGN
  if (magnitude == 0x7f800000u) return nan;
#endif
  const uint shift = uint(23 - LOW_PRECISION_MANTISSA);
#if ROUND == 1
  uint code = magnitude <= 1u << shift - 1u ? 0u : magnitude + ((1u << shift) - 1u) >> shift;
#elif ROUND == 2
  uint code = magnitude >> shift;
#elif ROUND == 3
  uint code = magnitude + (magnitude == 1u << shift - 1u ? 0u : 1u << shift - 1u) >> shift;
#else
  uint code = magnitude + (1u << shift - 1u) - 1u + (magnitude >> shift & 1u) >> shift;
#endif
#if LOW_PRECISION_HAS_SIGN
  code -= uint(127 - LOW_PRECISION_BIAS) << LOW_PRECISION_MANTISSA;
  if (magnitude < uint(128 - LOW_PRECISION_BIAS) << 23)
    code = uint(pm_round_even(uintBitsToFloat(magnitude) * uintBitsToFloat(uint(126 + LOW_PRECISION_BIAS + LOW_PRECISION_MANTISSA) << 23)));
#endif
  if (code > LOW_PRECISION_MAX_CODE) {
    if (LOW_PRECISION_SPECIALS == 2 && !saturate) return LOW_PRECISION_MAX_CODE + 1u | sign;
    if (LOW_PRECISION_SPECIALS != 3 && !saturate) return nan;
    code = LOW_PRECISION_MAX_CODE;
  }
  return LOW_PRECISION_SPECIALS == 1 && code == 0u ? 0u : code | sign;
}
#endif

#endif
