// 64-bit versions of the functions in math.glsl.
// The shader defines PM_HAS_FLOAT64 for double.
#ifdef PM_HAS_FLOAT64
bool pm_isnan(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return (word.y & 0x7fffffffu) + (word.x != 0u ? 1u : 0u) > 0x7ff00000u;
}
bool pm_isinf(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return (word.y & 0x7fffffffu) == 0x7ff00000u && word.x == 0u;
}
double pm_abs(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return packDouble2x32(uvec2(word.x, word.y & 0x7fffffffu));
}
double pm_sign(double x) { return x > 0.0LF ? 1.0LF : x < 0.0LF ? -1.0LF : x; }
double pm_double_zero() { return packDouble2x32(uvec2(0u, gl_NumWorkGroups.x >> 31)); }
double pm_sqrt(double x) { return sqrt(x); }
double pm_max(double a, double b) { return a > b || pm_isnan(a) ? a : b; }
double pm_min(double a, double b) { return a < b || pm_isnan(a) ? a : b; }
double pm_copysign(double magnitude, double x) {
  const uvec2 word = unpackDouble2x32(magnitude);
  return packDouble2x32(uvec2(word.x, (word.y & 0x7fffffffu) | (unpackDouble2x32(x).y & 0x80000000u)));
}
// Rounds by bit operations: drivers without a double instruction reuse the float algorithm, which gets ties wrong and treats every number
// above 2^24 as an integer.
double pm_trunc(double x) {
  const uvec2 word = unpackDouble2x32(x);
  const int e = int(word.y >> 20 & 0x7ffu) - 1023;
  const uint above = e < 0 ? 0x80000000u : ~(0xfffffu >> min(uint(e), 20u));
  const uint low = e <= 20 ? 0u : word.x & ~(0xffffffffu >> min(uint(e - 20), 31u));
  const double kept = packDouble2x32(uvec2(low, word.y & above));
  return e >= 52 ? x : kept;  // e >= 52: an integer, infinity or NaN
}
double pm_floor(double x) {
  const double whole = pm_trunc(x);
  return whole > x ? whole - 1.0LF : whole;
}
double pm_ceil(double x) {
  const double whole = pm_trunc(x);
  return whole < x ? whole + 1.0LF : whole;
}
double pm_round_even(double x) {
  const double whole = pm_trunc(x), rest = abs(x - whole), next = whole + pm_copysign(1.0LF, x), half_whole = pm_trunc(whole * 0.5LF);
  const bool is_odd = half_whole * 2.0LF != whole;
  return rest > 0.5LF || (rest == 0.5LF && is_odd) ? next : whole;
}
// 2^n for n in -1022 .. 1023.
double pm_double_exp2i(int n) { return packDouble2x32(uvec2(0u, uint(n + 1023) << 20)); }
// e^r - 1 for |r| <= 0.35: Taylor series with a remainder below 2^-55.
double pm_double_exp_tail(double r) {
  double y = 1.0LF / 6227020800.0LF;
  double factorial = 479001600.0LF;
  for (int n = 12; n >= 1; --n) {
    y = y * r + 1.0LF / factorial;
    factorial /= double(n);
  }
  return y * r;
}
// 2 ulp.
double pm_exp(double x) {
  const double clamped = x > 710.0LF ? 710.0LF : x < -746.0LF ? -746.0LF : x;  // outside, the result is infinity or 0
  const double k = pm_floor(clamped * 1.44269504088896340736LF + 0.5LF);
  const bool is_nan = pm_isnan(x);
  const int n = is_nan ? 0 : int(k);
  precise double r = (clamped - k * 0.693147180369123816490LF) - k * 1.90821492927058770002e-10LF;
  const double y = (1.0LF + pm_double_exp_tail(r)) * pm_double_exp2i(n >> 1) * pm_double_exp2i(n - (n >> 1));
  return is_nan ? x : y;
}
double pm_expm1(double x) {
  const double small = pm_double_exp_tail(x), large = pm_exp(x) - 1.0LF;
  return x == 0.0LF ? x : abs(x) < 0.35LF ? small : large;
}
// 4 ulp.
double pm_tanh(double x) {
  const double e = pm_expm1(-2.0LF * abs(x)), y = pm_copysign(-e / (e + 2.0LF), x);
  const bool is_nan = pm_isnan(x);
  return is_nan ? x : y;
}
double pm_sigmoid(double x) {
  const double e = pm_exp(-abs(x));
  return (x < 0.0LF ? e : 1.0LF) / (1.0LF + e);
}
// sin(r + quadrant pi/2) for |r| <= pi/4, by Taylor series.
double pm_double_sine(double r, int quadrant) {
  const bool is_cosine = (quadrant & 1) != 0;
  const double z = r * r;
  double term = is_cosine ? 1.0LF : r, sum = term;
  for (int n = is_cosine ? 1 : 2; n < 20; n += 2) {
    term *= -z / double(n * (n + 1));
    sum += term;
  }
  return (quadrant & 2) == 0 ? sum : -sum;
}
// 4 ulp of 1 for |x| < 2^20 pi / 2; above, the argument reduction loses precision.
double pm_sine(double x, int shift) {
  const bool is_nan = pm_isnan(x) || pm_isinf(x);
  const double x_or_zero = is_nan ? 0.0LF : x;
  const double k = pm_floor(x_or_zero * 0.63661977236758134308LF + 0.5LF);
  precise double r = ((x_or_zero - k * 1.57079632673412561417LF) - k * 6.07710050630396597660e-11LF) - k * 2.02226624879595063154e-21LF;
  const double y = pm_double_sine(r, int(k - pm_floor(k * 0.25LF) * 4.0LF) + shift);
  return is_nan ? double(pm_nan) : y;
}
double pm_sin(double x) {
  const double y = pm_sine(x, 0);
  return x == 0.0LF ? x : y;
}
double pm_cos(double x) { return pm_sine(x, 1); }
// Exponent field of a positive number, continued below zero for subnormals.
int pm_double_exponent(double x) {
  const int field = int(unpackDouble2x32(x).y >> 20);
  return field > 0 ? field : int(unpackDouble2x32(x * 18014398509481984.0LF).y >> 20) - 54;
}
double pm_fmod(double a, double b) {
  const bool is_nan = pm_isnan(a) || pm_isinf(a) || pm_isnan(b) || b == 0.0LF;
  const double d = is_nan ? 1.0LF : abs(b);
  const int exponent = pm_double_exponent(d), shift = exponent > 0 ? 0 : 54;
  const double normal = shift > 0 ? d * 18014398509481984.0LF : d;
  double r = is_nan ? 0.0LF : abs(a);
  for (int i = 0; i < 2200 && r >= d; ++i) {  // subtracts the largest d 2^k per iteration
    const int e = pm_double_exponent(r) - exponent - shift;
    precise double half_way = normal * pm_double_exp2i(e >> 1), part = half_way * pm_double_exp2i(e - (e >> 1));
    r -= part > r ? part * 0.5LF : part;
  }
  const double y = pm_copysign(r, a);
  return is_nan ? double(pm_nan) : y;
}
double pm_mod(double a, double b) {
  const double r = pm_fmod(a, b), zero = pm_copysign(0.0LF, b);
  return r == 0.0LF ? zero : r < 0.0LF != b < 0.0LF ? r + b : r;
}
double pm_floor_divide(double a, double b) {
  const double quotient = a / b, zero = pm_copysign(0.0LF, quotient);
  precise double r = pm_fmod(a, b), q = (a - r) / b;
  if (r != 0.0LF && r < 0.0LF != b < 0.0LF) q -= 1.0LF;
  const double below = pm_floor(q), whole = q - below > 0.5LF ? below + 1.0LF : below;
  return b == 0.0LF ? quotient : q == 0.0LF ? zero : whole;
}
#include "include/math_double.glsl"
#endif

// int64. The shader requires GL_EXT_shader_explicit_arithmetic_types_int64 and defines PM_HAS_INT64.
#ifdef PM_HAS_INT64
int64_t pm_abs(int64_t x) { return abs(x); }
int64_t pm_sign(int64_t x) { return x > 0L ? 1L : x < 0L ? -1L : 0L; }
int64_t pm_max(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t pm_min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t pm_fmod(int64_t a, int64_t b) { return a - a / b * b; }
// Converts by words: in llvmpipe of Mesa 22.3 int64_t(-1) of an int is not below a literal 0.
int64_t pm_int64_t(int x) { return packInt2x32(ivec2(x, x >> 31)); }
int64_t pm_mod(int64_t a, int64_t b) {
  int64_t r = a - a / b * b;
  return r != 0L && (r ^ b) < 0L ? r + b : r;
}
int64_t pm_floor_divide(int64_t a, int64_t b) {
  int64_t d = b == 0L || b == -1L ? 1L : b, q = a / d;
  return b == 0L ? 0L : b == -1L ? -a : q * d != a && a < 0L != d < 0L ? q - 1L : q;
}
uint64_t pm_floor_divide(uint64_t a, uint64_t b) { return b == 0UL ? 0UL : a / (b == 0UL ? 1UL : b); }
int64_t pm_pow(int64_t x, int64_t y) {
  const int64_t fraction = x == 1L ? 1L : x == -1L ? ((y & 1L) == 0L ? 1L : -1L) : 0L;
  int64_t result = 1L;
  for (int64_t left = y < 0L ? 0L : y; left != 0L; left >>= 1) {
    if ((left & 1L) != 0L) result *= x;
    x *= x;
  }
  return y < 0L ? fraction : result;
}
uint64_t pm_sign(uint64_t x) { return x > 0UL ? 1UL : 0UL; }
uint64_t pm_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
uint64_t pm_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
uint64_t pm_fmod(uint64_t a, uint64_t b) { return a % b; }
uint64_t pm_mod(uint64_t a, uint64_t b) { return a % b; }
uint64_t pm_shift_left(uint64_t a, uint64_t b) { return b < 64UL ? a << uint(b) : 0UL; }
uint64_t pm_shift_right(uint64_t a, uint64_t b) { return b < 64UL ? a >> uint(b) : 0UL; }
int64_t pm_shift_left(int64_t a, int64_t b) { return uint64_t(b) < 64UL ? a << int(b) : 0L; }
int64_t pm_shift_right(int64_t a, int64_t b) { return a >> (uint64_t(b) < 64UL ? int(b) : 63); }
uint64_t pm_pow(uint64_t x, uint64_t y) { return uint64_t(pm_pow(int64_t(x), int64_t(y & 0x7fffffffffffffffUL))); }
#endif
