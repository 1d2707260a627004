// Packed storage of 2, 4 and 8-bit elements, the first in the low bits; arithmetic is done in wider types. Float formats follow
// core/low_bit_float.h and are described by macros: NARROW_EXPONENT, NARROW_MANTISSA (bits), NARROW_BIAS, NARROW_LARGEST (code of the
// largest finite value), NARROW_SPECIALS (0: NaN is the last code; 1: NaN is -0; 2: infinities and NaNs use the last exponent; 3: none),
// NARROW_SIGN. NARROW_BITS: bits per element.
#ifndef PM_NARROW_GLSL
#define PM_NARROW_GLSL

#define NARROW_LANES (32u / uint(NARROW_BITS))
#define NARROW_LOAD(x, i) (x[(i) / NARROW_LANES] >> (i) % NARROW_LANES * uint(NARROW_BITS) & (1u << NARROW_BITS) - 1u)

#ifdef NARROW_EXPONENT
const uint NARROW_MAGNITUDE = (1u << NARROW_EXPONENT + NARROW_MANTISSA) - 1u;

// Decodes a code to the bits of a float32.
uint pm_narrow_value(uint code) {
  const uint magnitude = code & NARROW_MAGNITUDE, sign = code & ~NARROW_MAGNITUDE;
#if NARROW_SPECIALS == 1
  if (sign != 0u && magnitude == 0u) return 0x7fc00000u;
#else
  if (magnitude > NARROW_LARGEST) {
    const bool is_infinite = NARROW_SPECIALS == 2 && magnitude == NARROW_LARGEST + 1u;
    return (is_infinite ? 0x7f800000u : 0x7fc00000u) | (sign != 0u ? 0x80000000u : 0u);
  }
#endif
  const uint exponent = magnitude >> NARROW_MANTISSA, fraction = magnitude & (1u << NARROW_MANTISSA) - 1u;
  uint bits = exponent + uint(127 - NARROW_BIAS) << 23 | fraction << 23 - NARROW_MANTISSA;
#if NARROW_SIGN
  if (exponent == 0u) bits = floatBitsToUint(float(fraction) * uintBitsToFloat(uint(128 - NARROW_BIAS - NARROW_MANTISSA) << 23));
#else
  if (exponent == 0u) bits = 0x400000u;
#endif
  return bits | (sign != 0u ? 0x80000000u : 0u);
}

// Encodes the bits of a float32, rounding to nearest even. Formats without sign (and mantissa) encode the magnitude; ROUND 1 rounds up, 2
// down, 3 to nearest with ties up. Overflow saturates if `saturate` is set, and otherwise gives infinity or NaN.
uint pm_narrow_code(uint bits, bool saturate) {
  const uint magnitude = bits & 0x7fffffffu;
  const uint sign = NARROW_SIGN != 0 ? bits >> 31 << NARROW_EXPONENT + NARROW_MANTISSA : 0u;
#if NARROW_SPECIALS == 0
  const uint nan = NARROW_LARGEST + 1u | sign;
#elif NARROW_SPECIALS == 1
  const uint nan = NARROW_MAGNITUDE + 1u;
#elif NARROW_SPECIALS == 2
  const uint nan = NARROW_LARGEST + 1u | 1u << NARROW_MANTISSA - 1 | sign;
#else
  const uint nan = sign ^ NARROW_MAGNITUDE + 1u;  // 0: no NaN
#endif
  if (magnitude > 0x7f800000u) return nan;
#if !NARROW_SIGN
  if (magnitude == 0x7f800000u) return nan;
#endif
  const uint shift = uint(23 - NARROW_MANTISSA);
#if ROUND == 1
  uint code = magnitude <= 1u << shift - 1u ? 0u : magnitude + ((1u << shift) - 1u) >> shift;
#elif ROUND == 2
  uint code = magnitude >> shift;
#elif ROUND == 3
  uint code = magnitude + (magnitude == 1u << shift - 1u ? 0u : 1u << shift - 1u) >> shift;
#else
  uint code = magnitude + (1u << shift - 1u) - 1u + (magnitude >> shift & 1u) >> shift;
#endif
#if NARROW_SIGN
  code -= uint(127 - NARROW_BIAS) << NARROW_MANTISSA;
  if (magnitude < uint(128 - NARROW_BIAS) << 23)
    code = uint(pm_round_even(uintBitsToFloat(magnitude) * uintBitsToFloat(uint(126 + NARROW_BIAS + NARROW_MANTISSA) << 23)));
#endif
  if (code > NARROW_LARGEST) {
    if (NARROW_SPECIALS == 2 && !saturate) return NARROW_LARGEST + 1u | sign;
    if (NARROW_SPECIALS != 3 && !saturate) return nan;
    code = NARROW_LARGEST;
  }
  return NARROW_SPECIALS == 1 && code == 0u ? 0u : code | sign;
}
#endif

#endif
