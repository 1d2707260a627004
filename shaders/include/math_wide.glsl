// The functions of math.glsl for elements of 64 bits.
// double. The shader defines PM_HAS_FLOAT64.
#ifdef PM_HAS_FLOAT64
bool pm_isnan(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return (word.y & 0x7fffffffu) + (word.x != 0u ? 1u : 0u) > 0x7ff00000u;
}
bool pm_isinf(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return (word.y & 0x7fffffffu) == 0x7ff00000u && word.x == 0u;
}
double pm_sign(double x) { return x > 0.0LF ? 1.0LF : x < 0.0LF ? -1.0LF : x; }
double pm_wide_zero() { return packDouble2x32(uvec2(0u, gl_NumWorkGroups.x >> 31)); }
double pm_sqrt(double x) { return sqrt(x); }
double pm_max(double a, double b) { return a > b || pm_isnan(a) ? a : b; }
double pm_min(double a, double b) { return a < b || pm_isnan(a) ? a : b; }
double pm_copysign(double magnitude, double x) {
  const uvec2 word = unpackDouble2x32(magnitude);
  return packDouble2x32(uvec2(word.x, (word.y & 0x7fffffffu) | (unpackDouble2x32(x).y & 0x80000000u)));
}
// Rounding to integers by the bits: drivers that lack an instruction for doubles take the algorithm for floats, whose halves are not
// those of a double and which takes every number above 2^24 for an integer.
double pm_trunc(double x) {
  uvec2 word = unpackDouble2x32(x);
  const int e = int(word.y >> 20 & 0x7ffu) - 1023;
  if (e >= 52) return x;  // an integer, infinity or NaN
  if (e < 0) return packDouble2x32(uvec2(0u, word.y & 0x80000000u));
  const uint below = 0xfffffu >> min(uint(e), 20u);
  word.y &= ~below;
  word.x = e <= 20 ? 0u : word.x & ~(0xffffffffu >> uint(e - 20));
  return packDouble2x32(word);
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
  const double whole = pm_trunc(x), rest = abs(x - whole);
  const bool is_odd = pm_trunc(whole * 0.5LF) * 2.0LF != whole;
  const bool away = rest > 0.5LF || (rest == 0.5LF && is_odd);
  return away ? whole + pm_copysign(1.0LF, x) : whole;
}
// 2^n for n in -1022 .. 1023.
double pm_double_exp2i(int n) { return packDouble2x32(uvec2(0u, uint(n + 1023) << 20)); }
// e^r - 1 for |r| <= 0.35: the Taylor series, whose rest is below 2^-55.
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
  if (pm_isnan(x)) return x;
  if (x > 709.8LF) return double(pm_infinity);
  if (x < -745.2LF) return 0.0LF;
  const double k = pm_floor(x * 1.44269504088896340736LF + 0.5LF);
  const int n = int(k);
  precise double r = (x - k * 0.693147180369123816490LF) - k * 1.90821492927058770002e-10LF;
  const double y = 1.0LF + pm_double_exp_tail(r);
  return y * pm_double_exp2i(n >> 1) * pm_double_exp2i(n - (n >> 1));
}
double pm_expm1(double x) { return abs(x) < 0.35LF ? (x == 0.0LF ? x : pm_double_exp_tail(x)) : pm_exp(x) - 1.0LF; }
// 4 ulp.
double pm_tanh(double x) {
  const double e = pm_expm1(-2.0LF * abs(x));
  return pm_isnan(x) ? x : pm_copysign(-e / (e + 2.0LF), x);
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
// 4 ulp of 1 for |x| < 2^20 pi / 2; beyond, the reduction loses digits.
double pm_sine(double x, int shift) {
  if (pm_isnan(x) || pm_isinf(x)) return double(pm_nan);
  const double k = pm_floor(x * 0.63661977236758134308LF + 0.5LF);
  precise double r = ((x - k * 1.57079632673412561417LF) - k * 6.07710050630396597660e-11LF) - k * 2.02226624879595063154e-21LF;
  return pm_double_sine(r, int(k - pm_floor(k * 0.25LF) * 4.0LF) + shift);
}
double pm_sin(double x) { return x == 0.0LF ? x : pm_sine(x, 0); }
double pm_cos(double x) { return pm_sine(x, 1); }
double pm_fmod(double a, double b) {
  if (pm_isnan(a) || pm_isinf(a) || pm_isnan(b) || b == 0.0LF) return double(pm_nan);
  double r = abs(a);
  const double d = abs(b);
  for (int i = 0; i < 2200 && r >= d; ++i) {  // each turn takes off the largest multiple of d by a power of two
    const int e = int(unpackDouble2x32(r).y >> 20) - int(unpackDouble2x32(d).y >> 20);
    double part = d * pm_double_exp2i(e > 1000 ? 1000 : e);
    r -= part > r ? part * 0.5LF : part;
  }
  return pm_copysign(r, a);
}
double pm_mod(double a, double b) {
  const double r = pm_fmod(a, b);
  return r != 0.0LF && r < 0.0LF != b < 0.0LF ? r + b : r == 0.0LF ? pm_copysign(r, b) : r;
}
double pm_floor_divide(double a, double b) {
  if (b == 0.0LF) return a / b;
  precise double r = pm_fmod(a, b), q = (a - r) / b;
  if (r != 0.0LF && r < 0.0LF != b < 0.0LF) q -= 1.0LF;
  if (q == 0.0LF) return pm_copysign(0.0LF, a / b);
  const double whole = pm_floor(q);
  return q - whole > 0.5LF ? whole + 1.0LF : whole;
}
#include "include/math_double.glsl"
#endif

// The same for 64 bits. The shader requires GL_EXT_shader_explicit_arithmetic_types_int64 and defines PM_HAS_INT64.
#ifdef PM_HAS_INT64
int64_t pm_sign(int64_t x) { return x > 0L ? 1L : x < 0L ? -1L : 0L; }
int64_t pm_max(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t pm_min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t pm_fmod(int64_t a, int64_t b) { return a - a / b * b; }
// By its words: llvmpipe of Mesa 22.3 says that int64_t(-1) of an int is not below a literal 0.
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
  if (y < 0L) return x == 1L ? 1L : x == -1L ? ((y & 1L) == 0L ? 1L : -1L) : 0L;
  int64_t result = 1L;
  for (; y != 0L; y >>= 1) {
    if ((y & 1L) != 0L) result *= x;
    x *= x;
  }
  return result;
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
