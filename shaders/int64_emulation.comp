// 64-bit integers as pairs of words, low word first, for devices without 64-bit integers.
//
// cpp/shader/int64/int64_functions.cpp copies these functions and their callees into kernels by name. Parameters are `const`, so
// that they are passed by value. Results match the SPIR-V instructions. If SPIR-V leaves the result undefined: signed division by zero
// gives 0, unsigned division by zero all bits set, and a remainder by zero all bits set. Shifts use the low six bits of the count; floats
// out of range give the smallest int64.
// main() only keeps the compiler from removing the functions; it is never dispatched.
#version 450
layout(local_size_x = 1) in;
layout(binding = 0) buffer Y { uvec2 y[]; };
layout(binding = 1) buffer F { float f[]; };
layout(binding = 2) buffer D { double d[]; };

bool pair_less(const uvec2 a, const uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
bool pair_less_signed(const uvec2 a, const uvec2 b) { return int(a.y) < int(b.y) || (a.y == b.y && a.x < b.x); }

uvec2 pair_add(const uvec2 a, const uvec2 b) {
  const uint low = a.x + b.x;
  return uvec2(low, a.y + b.y + uint(low < a.x));
}
uvec2 pair_subtract(const uvec2 a, const uvec2 b) { return uvec2(a.x - b.x, a.y - b.y - uint(a.x < b.x)); }
uvec2 pair_negate(const uvec2 a) { return uvec2(0u - a.x, ~a.y + uint(a.x == 0u)); }
uvec2 pair_abs(const uvec2 a) { return int(a.y) < 0 ? pair_negate(a) : a; }
uvec2 pair_sign(const uvec2 a) { return int(a.y) < 0 ? uvec2(0xffffffffu) : uvec2(uint((a.x | a.y) != 0u), 0u); }
uvec2 pair_multiply(const uvec2 a, const uvec2 b) {
  uint low, high;
  umulExtended(a.x, b.x, high, low);
  return uvec2(low, high + a.x * b.y + a.y * b.x);
}

uvec2 pair_min(const uvec2 a, const uvec2 b) { return pair_less(b, a) ? b : a; }
uvec2 pair_max(const uvec2 a, const uvec2 b) { return pair_less(a, b) ? b : a; }
uvec2 pair_min_signed(const uvec2 a, const uvec2 b) { return pair_less_signed(b, a) ? b : a; }
uvec2 pair_max_signed(const uvec2 a, const uvec2 b) { return pair_less_signed(a, b) ? b : a; }

uvec2 pair_shift_left(const uvec2 a, const uint n) {
  const uint k = n & 31u;
  const uvec2 b = uvec2(a.x << k, a.y << k | a.x >> 1 >> (31u - k));
  return (n & 32u) != 0u ? uvec2(0u, b.x) : b;
}
uvec2 pair_shift_right(const uvec2 a, const uint n) {
  const uint k = n & 31u;
  const uvec2 b = uvec2(a.x >> k | a.y << 1 << (31u - k), a.y >> k);
  return (n & 32u) != 0u ? uvec2(b.y, 0u) : b;
}
uvec2 pair_shift_right_signed(const uvec2 a, const uint n) {
  const uint k = n & 31u;
  const uvec2 b = uvec2(a.x >> k | a.y << 1 << (31u - k), uint(int(a.y) >> k));
  return (n & 32u) != 0u ? uvec2(b.y, uint(int(a.y) >> 31)) : b;
}

uint pair_leading_zeros(const uvec2 a) { return uint(a.y != 0u ? 31 - findMSB(a.y) : 63 - findMSB(a.x)); }

// Long division by b < 2^16, in base 2^16; returns the quotient and the remainder.
uvec4 pair_divmod_by_16bit(const uvec2 a, const uint b) {
  const uint high = a.y % b << 16 | a.x >> 16, low = high % b << 16 | (a.x & 0xffffu);
  return uvec4(high / b << 16 | low / b, a.y / b, low % b, 0u);
}
// Long division bit by bit, from the position where the leading bits align.
uvec4 pair_divmod_bitwise(const uvec2 a, const uvec2 b) {
  uvec2 left = a, quotient = uvec2(0u);
  const int places = int(pair_leading_zeros(b)) - int(pair_leading_zeros(a));
  uvec2 part = pair_shift_left(b, uint(max(places, 0)));
  for (int k = places; k >= 0; --k) {
    quotient = pair_shift_left(quotient, 1u);
    if (!pair_less(left, part)) {
      left = pair_subtract(left, part);
      quotient.x |= 1u;
    }
    part = pair_shift_right(part, 1u);
  }
  return uvec4(quotient, left);
}
uvec4 pair_divmod(const uvec2 a, const uvec2 b) {
  if ((b.x | b.y) == 0u) return uvec4(0xffffffffu);
  if ((a.y | b.y) == 0u) return uvec4(a.x / b.x, 0u, a.x % b.x, 0u);
  if (b.y == 0u && b.x < 0x10000u) return pair_divmod_by_16bit(a, b.x);
  return pair_divmod_bitwise(a, b);
}
uvec2 pair_divide(const uvec2 a, const uvec2 b) { return pair_divmod(a, b).xy; }
uvec2 pair_modulo(const uvec2 a, const uvec2 b) { return pair_divmod(a, b).zw; }
uvec2 pair_divide_signed(const uvec2 a, const uvec2 b) {
  if ((b.x | b.y) == 0u) return uvec2(0u);
  const uvec2 q = pair_divmod(pair_abs(a), pair_abs(b)).xy;
  return int(a.y ^ b.y) < 0 ? pair_negate(q) : q;
}
uvec2 pair_remainder_signed(const uvec2 a, const uvec2 b) {
  if ((b.x | b.y) == 0u) return uvec2(0xffffffffu);
  const uvec2 r = pair_divmod(pair_abs(a), pair_abs(b)).zw;
  return int(a.y) < 0 ? pair_negate(r) : r;
}
uvec2 pair_modulo_signed(const uvec2 a, const uvec2 b) {
  const uvec2 r = pair_remainder_signed(a, b);
  return (r.x | r.y) != 0u && int(r.y ^ b.y) < 0 ? pair_add(r, b) : r;
}

// Rounds to the nearest float, ties to even.
float pair_to_float(const uvec2 a) {
  if ((a.x | a.y) == 0u) return 0.0;
  const uint zeros = pair_leading_zeros(a);
  const uvec2 top = pair_shift_left(a, zeros);
  const uint left = (top.y & 0xffu) << 1 | uint(top.x != 0u), bits = (189u - zeros << 23) + (top.y >> 8);
  return uintBitsToFloat(bits + uint(left + (bits & 1u) > 0x100u));
}
// Rounds to odd: rounding the result again to half the precision equals rounding the exact value once.
float pair_to_float_round_odd(const uvec2 a) {
  if ((a.x | a.y) == 0u) return 0.0;
  const uint zeros = pair_leading_zeros(a);
  const uvec2 top = pair_shift_left(a, zeros);
  return uintBitsToFloat((189u - zeros << 23) + (top.y >> 8) | uint((top.y & 0xffu | top.x) != 0u));
}
double pair_to_double(const uvec2 a) {
  if ((a.x | a.y) == 0u) return 0.0lf;
  const uint zeros = pair_leading_zeros(a);
  const uvec2 top = pair_shift_left(a, zeros), whole = pair_shift_right(top, 11u);
  const uint up = uint((top.x & 0x7ffu) + (whole.x & 1u) > 0x400u);
  return packDouble2x32(pair_add(uvec2(whole.x, whole.y + (1085u - zeros << 20)), uvec2(up, 0u)));
}
float pair_to_float_signed(const uvec2 a) { return uintBitsToFloat(floatBitsToUint(pair_to_float(pair_abs(a))) | (a.y & 0x80000000u)); }
float pair_to_float_round_odd_signed(const uvec2 a) {
  return uintBitsToFloat(floatBitsToUint(pair_to_float_round_odd(pair_abs(a))) | (a.y & 0x80000000u));
}
double pair_to_double_signed(const uvec2 a) {
  return packDouble2x32(unpackDouble2x32(pair_to_double(pair_abs(a))) | uvec2(0u, a.y & 0x80000000u));
}

// mantissa * 2^exponent, truncated, negated if the top bit of `sign` is set.
uvec2 pair_scale(const uvec2 mantissa, const int exponent, const uint sign) {
  const uvec2 a = exponent < 0 ? pair_shift_right(mantissa, uint(-exponent)) : pair_shift_left(mantissa, uint(exponent));
  return int(sign) < 0 ? pair_negate(a) : a;
}
uvec2 pair_from_float(const float v) {
  const uint bits = floatBitsToUint(v);
  const int exponent = int(bits >> 23 & 0xffu) - 150;
  if (exponent < -23) return uvec2(0u);
  return exponent > 40 ? uvec2(0u, 0x80000000u) : pair_scale(uvec2(bits & 0x7fffffu | 0x800000u, 0u), exponent, bits);
}
uvec2 pair_from_double(const double v) {
  const uvec2 bits = unpackDouble2x32(v);
  const int exponent = int(bits.y >> 20 & 0x7ffu) - 1075;
  if (exponent < -52) return uvec2(0u);
  return exponent > 11 ? uvec2(0u, 0x80000000u) : pair_scale(uvec2(bits.x, bits.y & 0xfffffu | 0x100000u), exponent, bits.y);
}

// Keeps the compiler from removing the functions.
void main() {
  const uvec2 a = y[0], b = y[1];
  y[2] = pair_add(a, b) + pair_subtract(a, b) + pair_multiply(a, b) + pair_sign(a);
  y[3] = pair_min(a, b) + pair_max(a, b) + pair_min_signed(a, b) + pair_max_signed(a, b);
  y[4] = pair_shift_left(a, b.x) + pair_shift_right(a, b.x) + pair_shift_right_signed(a, b.x);
  y[5] = pair_divide(a, b) + pair_modulo(a, b) + pair_divide_signed(a, b) + pair_modulo_signed(a, b);
  y[6] = pair_from_float(f[0]) + pair_from_double(d[0]);
  f[1] = pair_to_float_signed(a) + pair_to_float_round_odd_signed(a);
  d[1] = pair_to_double_signed(a);
}
