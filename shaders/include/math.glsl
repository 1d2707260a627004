// Elementary fp32 functions whose precision, NaN or overflow behaviour is implementation-defined in Vulkan. NaN in, NaN out. Errors are in
// ulp, measured over all binades against double precision with and without fma; subnormal results may be flushed to zero if the device
// does. Functions that a shader does not call cost nothing.
//
// Functions return only at their end and select between values that are already computed. Early returns and calls inside ?: become
// branches, and lavapipe (Mesa 22.3.6) mixes up result bits when branches of several functions merge in a kernel or follow a loop.
// tests/device/test_math_functions.py checks this.
#ifndef PM_MATH_GLSL
#define PM_MATH_GLSL

#define pm_infinity uintBitsToFloat(0x7f800000u)
// Sum of squared deviations from the mean, computed from the sum about a shift. An overflowed sum stays infinite, because inf - inf would
// make all outputs NaN.
float pm_centred_squares(float squares, float excess) {
  const float rest = squares - excess;
  return squares > uintBitsToFloat(0x7f7fffffu) ? squares : rest < 0.0 ? 0.0 : rest;
}
#define pm_nan uintBitsToFloat(0x7fc00000u)

bool pm_isnan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool pm_isinf(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
// PM_CHECKS_NAN: the driver returns numbers for exp and log of NaN. The names are written out because token pasting would pull in all
// device macros.
#if PM_CHECKS_NAN
#define PM_DEFINE_CHECKED(checked, function) \
  float checked(float x) { return pm_isnan(x) ? x : function(x); } \
  vec4 checked(vec4 x) { return vec4(checked(x.x), checked(x.y), checked(x.z), checked(x.w)); }
PM_DEFINE_CHECKED(pm_checked_exp, exp)
PM_DEFINE_CHECKED(pm_checked_exp2, exp2)
PM_DEFINE_CHECKED(pm_checked_log, log)
#define exp(x) pm_checked_exp(x)
#define exp2(x) pm_checked_exp2(x)
#define log(x) pm_checked_log(x)
#endif
// Zero that the compiler cannot fold: no grid has 2^31 workgroups on an axis.
float pm_zero() { return uintBitsToFloat(gl_NumWorkGroups.x >> 31); }
// Copies the sign bit of x, also to zeros and infinities.
float pm_copysign(float magnitude, float x) {
  return uintBitsToFloat((floatBitsToUint(magnitude) & 0x7fffffffu) | (floatBitsToUint(x) & 0x80000000u));
}
// Flushes subnormals to zero. PM_FLUSHES: the device flushes them in some operations, such as comparisons, but not in others.
#if PM_FLUSHES
float pm_flush_subnormals(float v) {
  const uint bits = floatBitsToUint(v);
  return (bits & 0x7fffffffu) < 0x00800000u ? uintBitsToFloat(bits & 0x80000000u) : v;
}
#else
#define pm_flush_subnormals(v) (v)
#endif
// Clears the sign bit: some drivers assume that sqrt() has no sign and drop its abs(), although sqrt(-0) is -0.
float pm_abs(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu); }
int pm_abs(int x) { return abs(x); }
float pm_sign(float x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : pm_flush_subnormals(x); }
int pm_sign(int x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
uint pm_sign(uint x) { return x > 0u ? 1u : 0u; }

// NumPy's maximum and minimum: NaN if either is NaN. A driver's max(NaN, 0) may return 0; compare and select never does.
float pm_max(float a, float b) { return pm_flush_subnormals(a > b || pm_isnan(a) ? a : b); }
float pm_min(float a, float b) { return pm_flush_subnormals(a < b || pm_isnan(a) ? a : b); }
int pm_max(int a, int b) { return a > b ? a : b; }
int pm_min(int a, int b) { return a < b ? a : b; }
uint pm_max(uint a, uint b) { return a > b ? a : b; }
uint pm_min(uint a, uint b) { return a < b ? a : b; }

// Rounding to integers; ties to even, zeros keep their sign.
#if PM_OWN_ROUNDING
float pm_trunc(float x) {
  const uint bits = floatBitsToUint(x), e = bits >> 23 & 0xffu;
  const uint kept = e < 127u ? bits & 0x80000000u : bits & ~(0x007fffffu >> min(e - 127u, 23u));
  return e >= 150u ? x : uintBitsToFloat(kept);  // e >= 150: an integer, infinity or NaN
}
float pm_floor(float x) {
  const float whole = pm_trunc(x);
  return whole > x ? whole - 1.0 : whole;
}
float pm_ceil(float x) {
  const float whole = pm_trunc(x);
  return whole < x ? whole + 1.0 : whole;
}
float pm_round_even(float x) {
  const float whole = pm_trunc(x), rest = abs(x - whole);
  const bool is_odd = pm_trunc(whole * 0.5) * 2.0 != whole;
  const float away = whole + pm_copysign(1.0, x);
  return rest > 0.5 || (rest == 0.5 && is_odd) ? away : whole;
}
#else
float pm_trunc(float x) { return trunc(x); }
float pm_floor(float x) { return floor(x); }
float pm_ceil(float x) { return ceil(x); }
float pm_round_even(float x) { return roundEven(x); }
#endif

// Rounds to nearest. PM_UNSIGNED_BY_HALVES: converts 16 bits at a time, because the device's conversion is sometimes wrong.
#if PM_UNSIGNED_BY_HALVES
float pm_float(uint x) {
  precise float sum = float(int(x >> 16)) * 65536.0 + float(int(x & 0xffffu));
  return sum;
}
#else
float pm_float(uint x) { return float(x); }
#endif

// 2^n for n in -126 .. 127.
float pm_exp2i(int n) { return uintBitsToFloat(uint(n + 127) << 23); }
// Multiplies twice, since 2^n itself may be subnormal or overflow.
float pm_scale(float x, int n) {
  precise float half_way = x * pm_exp2i(n >> 1), y = half_way * pm_exp2i(n - (n >> 1));
  return y;
}
// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
float pm_exp_tail(float r) { return 0.5 + r * (0.166665763 + r * (0.0416663736 + r * (0.00836324878 + r * 0.00139412389))); }
// x = n ln(2) + r for |x| < 2^21. Adding 1.5 * 2^23 rounds to an integer in the low bits of the sum.
float pm_exp_reduce(float x, out int n) {
  n = int(floatBitsToUint(x * 1.44269504 + 12582912.0) - 0x4b400000u);
  const float k = float(n);
  precise float r = (x - k * 0.693359375) + k * 2.12194440e-4;
  return r;
}

#if PM_BRIEF
// e^x for 16-bit results (8 or 11 significant bits): native exp2 (3 + 2 |x| ulp by the Vulkan precision table); relative error 2^-17.
float pm_exp(float x) { return exp2(x * 1.44269504); }
#else
// 1.5 ulp.
float pm_exp(float x) {
  int n;
  float r = pm_exp_reduce(x < -104.0 ? -104.0 : x > 89.0 ? 89.0 : x, n);  // outside, the result is 0 or infinity
  float y = pm_scale(1.0 + (r + r * r * pm_exp_tail(r)), n);
  return pm_isnan(x) ? x : y;
}
#endif

// e^x - 1; 2 ulp.
float pm_expm1(float x) {
  int n;
  float r = pm_exp_reduce(x < -20.0 ? -20.0 : x > 20.0 ? 20.0 : x, n);
  float scale = pm_exp2i(n);
  precise float y = scale * (r + r * r * pm_exp_tail(r)) + (scale - 1.0);
  const float large = pm_exp(x);
  return pm_isnan(x) || x == 0.0 ? x : x > 20.0 ? large : x < -20.0 ? -1.0 : y;
}

// Splits x = (1 + f) 2^e with 1 + f in sqrt(1/2) .. sqrt(2), for x > 0, including subnormals.
float pm_log_reduce(float x, out int e) {
  uint bits = floatBitsToUint(x);
  e = -127;
  if (bits < 0x00800000u) {
    bits = floatBitsToUint(float(bits));  // now x / 2^-149
    e = -276;
  }
  bits += 0x004afb0du;
  e += int(bits >> 23);
  return uintBitsToFloat((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
}
// log(1 + f) - f
float pm_log_tail(float f) {
  float p = -0.116617538 + f * 0.0733419582;
  p = -0.123964667 + f * (0.116348736 + f * p);
  p = -0.166691601 + f * (0.142511144 + f * p);
  p = -0.249999806 + f * (0.200006887 + f * p);
  p = 0.333333313 + f * p;
  return f * f * (f * p - 0.5);
}

// 1 ulp; NaN below 0.
float pm_log(float x) {
  int e;
  float f = pm_log_reduce(x, e), k = float(e);
  precise float y = k * 0.693359375 + (f + (pm_log_tail(f) - k * 2.12194440e-4));
  return pm_isnan(x) ? x : x == 0.0 ? -pm_infinity : x < 0.0 ? pm_nan : pm_isinf(x) ? x : y;
}

// log(1 + x); 2 ulp.
float pm_log1p(float x) {
  precise float u = 1.0 + x;
  precise float lost = x - (u - 1.0);
  const float rounded = pm_log(u), y = rounded + lost / u;
  return u == 1.0 || pm_isnan(x) ? x : pm_isinf(u) || u <= 0.0 ? rounded : y;
}

#if PM_BRIEF
// Relative error 2^-16.
float pm_tanh(float x) {
  float t = abs(x), e = exp2(t * -2.88539008);
  float large = pm_copysign((1.0 - e) / (1.0 + e), x);
  return t < 0.04 ? x - x * x * x * 0.333333343 : large;
}
float pm_sigmoid(float x) { return 1.0 / (1.0 + exp2(x * -1.44269504)); }
#else
// 3 ulp.
float pm_tanh(float x) {
  float t = abs(x), z = x * x;
  float p = -0.0539595447 + z * (0.0217709448 + z * (-0.00834984146 + z * 0.00229875208));
  p = -0.333333343 + z * (0.133333042 + z * p);
  float small = x + x * z * p, large = pm_copysign(1.0 - 2.0 / (pm_exp(t + t) + 1.0), x);
  float y = t < 0.625 ? small : large;
  return pm_isnan(x) ? x : y;
}

// 1 / (1 + e^-x); 3 ulp.
float pm_sigmoid(float x) {
  float e = pm_exp(-abs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
#endif

// log(1 + e^x); 3 ulp.
float pm_softplus(float x) { return (x > 0.0 ? x : 0.0) + pm_log1p(pm_exp(-abs(x))); }

#if PM_BRIEF
// Rational approximation; relative error 2^-20, absolute 5e-7.
float pm_erf(float x) {
  float t = x > 3.92 ? 3.92 : x < -3.92 ? -3.92 : x, z = t * t;
  float p = 1.12837911 + z * (0.388594806 + z * (0.0757706165 + z * (0.0112658385 + z * (0.000283970643 + z * -1.59868114e-06))));
  float q = 1.0 + z * (0.677709281 + z * (0.193099037 + z * (0.0302883927 + z * 0.00265428144)));
  return pm_isnan(x) ? x : t * p / q;
}
#else
// 2 ulp. Computes both polynomials and selects: lavapipe (Mesa 22.3.6) mixes up bits of two branches after a loop.
float pm_erf(float x) {
  float t = abs(x), z = x * x;
  float p = 0.00520389993 + z * (-0.000817547494 + z * 8.50996003e-05);
  float small = x + x * (0.128379166 + z * (-0.376126349 + z * (0.112837166 + z * (-0.02686055 + z * p))));
  float w = t > 4.0 ? 4.0 : t;
  float q = 0.00473028142 + w * (-0.00059071515 + w * (4.53545763e-05 + w * -1.60248987e-06));
  q = -0.000294274563 + w * (1.13013148 + w * (0.63199532 + w * (0.109925181 + w * (-0.0263355374 + w * q))));
  float large = pm_copysign(1.0 - pm_exp(-q), x);
  return pm_isnan(x) ? x : t < 0.9 ? small : large;
}
#endif

// Normal CDF, erfc(-x / sqrt(2)) / 2. For x < 0: t exp(p(t) - x^2 / 2) with t = 1 / (1 + c |x|), which keeps the tail accurate. 10 ulp for
// |x| < 3, else 10 + x^2 / 2 ulp, since the exponent is rounded twice; relative error below 8e-6 everywhere.
float pm_normal_cdf(float x) {
#if PM_BRIEF
  // relative error 1e-5
  float t = 1.0 / (1.0 + 0.353553385 * abs(x));
  float p = -1.2665416 + t * (1.01801205 + t * (0.254449368 + t * (0.474481136 + t * (-0.709179819 + t * 0.228786469))));
#else
  float t = 1.0 / (1.0 + 0.332340181 * abs(x));
  float p = 0.88735038 + t * (-1.93378985 + t * (1.97235978 + t * (-0.946841002 + t * 0.178194627)));
  p = -1.32740664 + t * (1.00069106 + t * (0.379700363 + t * (0.187799945 + t * (-0.398058593 + t * p))));
#endif
  float y = 0.5 * t * pm_exp(p - 0.5 * x * x);
  return x < 0.0 ? y : 1.0 - y;
}

bool pm_is_finite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < 0x7f800000u; }

#include "include/math_correctly_rounded.glsl"
#include "include/math_trigonometry.glsl"

// e^t / 2; 3 ulp, without premature overflow.
float pm_half_exp(float t) {
  float e = pm_exp(t * 0.5), small = 0.5 * pm_exp(t);
  return t > 88.0 ? 0.5 * e * e : small;
}
float pm_sinh(float x) {
  float t = abs(x), z = x * x, h = pm_half_exp(t);
  float small = x + x * z * (0.166666672 + z * (0.00833333936 + z * (0.000198380978 + z * 2.8063057e-06)));
  float large = pm_copysign(h - 0.25 / h, x);
  return t < 1.0 ? small : large;
}
float pm_cosh(float x) {
  float h = pm_half_exp(abs(x));
  return h + 0.25 / h;
}
// 3 ulp.
float pm_asinh(float x) {
  float t = abs(x), z = t * t;
  float large = pm_log(t) + 0.693147181, small = pm_log1p(t + z / (1.0 + sqrt(z + 1.0)));
  return pm_copysign(t > 1e9 ? large : small, x);
}
float pm_acosh(float x) {
  float f = x - 1.0;
  float large = pm_log(x) + 0.693147181, small = pm_log1p(f + sqrt(f + f + f * f));
  return x < 1.0 ? pm_nan : x > 1e9 ? large : small;
}
float pm_atanh(float x) {
  float t = abs(x);
  float y = pm_copysign(0.5 * pm_log1p((t + t) / (1.0 - t)), x), end = pm_copysign(pm_infinity, x);
  return pm_isnan(x) ? x : t < 1.0 ? y : t == 1.0 ? end : pm_nan;
}

// log2(x) as an unevaluated sum, for finite x > 0.
float pm_log2_two_sum(float x, out float rest) {
  int e;
  precise float f = pm_log_reduce(x, e);
  precise float d = 2.0 + f, s = f / d, error_sd;
  float sd = pm_exact_product(s, d, error_sd);
  precise float d_lost = f - (d - 2.0);
  precise float s_low = ((f - sd) - error_sd - s * d_lost) / d;
  float z = s * s;
  float tail = s_low + s * z * (0.333333343 + z * (0.200000614 + z * (0.142753392 + z * 0.116669886)));
  precise float low;
  precise float high = pm_exact_product(s, 2.88539004, low);
  low = low + (s * 3.85190537e-08 + tail * 2.88539004);
  precise float k = float(e), sum = k + high;
  precise float lost = (abs(k) > abs(high) ? (k - sum) + high : (high - sum) + k) + low;
  precise float total = sum + lost;
  rest = lost - (total - sum);
  return total;
}
// |x|^y for finite x != 0 and finite y.
float pm_pow_core(float x, float y) {
  float low, product_low;
  float high = pm_log2_two_sum(abs(x), low);
  float end = pm_copysign(1e15, y);
  y = abs(y) > 1e15 ? end : y;
  const bool is_near_one = abs(y) < 1e-15 || high == 0.0;
  const float near_one = pm_exp(y * (high + low) * 0.693147181);
  precise float product = pm_exact_product(high, y, product_low);
  product_low += low * y;
  precise float n = floor(product + 0.5), r = (product - n) + product_low;
  float p = 0.0555035695 + r * (0.00961803086 + r * (0.00133908668 + r * 0.000154697307));
  float m = 1.0 + r * (0.693147182 + r * (0.240226507 + r * p));
  int k = int(n > 200.0 ? 200.0 : n < -200.0 ? -200.0 : n);
  float scaled = pm_scale(m, clamp(k, -151, 128));
  return is_near_one ? near_one : k > 128 ? pm_infinity : k < -151 ? 0.0 : scaled;
}
// 3 ulp; special cases of IEEE 754 pow: 1 for y = 0 and x = 1, NaN for negative x and non-integer y.
float pm_pow(float x, float y) {
  bool is_integer = floor(y) == y;
  bool is_odd = is_integer && abs(y) < 16777216.0 && (int(abs(y) < 16777216.0 ? y : 0.0) & 1) != 0;
  bool is_negative = (floatBitsToUint(x) & 0x80000000u) != 0u;
  float power;
  if (y == 0.0 || x == 1.0) {
    power = 1.0;
  } else if (y == 1.0) {
    power = x;
  } else if (y == 2.0) {
    power = x * x;
  } else if (pm_isnan(x) || pm_isnan(y)) {
    power = pm_nan;
  } else if (pm_isinf(y)) {
    power = abs(x) == 1.0 ? 1.0 : abs(x) > 1.0 == (y > 0.0) ? pm_infinity : 0.0;
  } else if (x == 0.0 || pm_isinf(x)) {
    power = (x == 0.0) == (y > 0.0) ? 0.0 : pm_infinity;
    power = is_negative && is_odd ? -power : power;
  } else {
    power = pm_pow_core(x, y);
    power = is_negative && !is_integer ? pm_nan : is_negative && is_odd ? -power : power;
  }
  return power;
}

// Exact remainder of truncated division, with the sign of a, like fmod in C.
float pm_fmod(float a, float b) {
  uint bits_a = floatBitsToUint(a) & 0x7fffffffu, bits_b = floatBitsToUint(b) & 0x7fffffffu;
  const bool is_nan = !pm_is_finite(a) || pm_isnan(b) || b == 0.0;
  int exponent_a = max(int(bits_a >> 23), 1), exponent_b = max(int(bits_b >> 23), 1);
  uint m = bits_a < 0x00800000u ? bits_a : (bits_a & 0x007fffffu) | 0x00800000u;
  uint n = bits_b < 0x00800000u ? bits_b : (bits_b & 0x007fffffu) | 0x00800000u;
  n = max(n, 1u);
  m %= n;
  for (int left = is_nan ? 0 : exponent_a - exponent_b; left > 0; left -= 8) m = (m << min(left, 8)) % n;
  // m < 2^24, in units of 2^(exponent_b - 150)
  float r = float(m);
  float small = pm_scale(r, min(exponent_b, 24) - 150);
  float large = uintBitsToFloat(m == 0u ? 0u : floatBitsToUint(r) + (uint(exponent_b - 150) << 23));
  float y = pm_copysign(exponent_b > 24 ? large : small, a);
  return is_nan ? pm_nan : bits_a < bits_b ? a : y;
}
// Remainder of floored division, with the sign of b, like mod in NumPy.
float pm_mod(float a, float b) {
  float r = pm_fmod(a, b);
  float zero = pm_copysign(pm_flush_subnormals(r), b);
  return r != 0.0 && r < 0.0 != b < 0.0 ? r + b : r == 0.0 ? zero : r;
}
int pm_mod(int a, int b) {
  int r = a - a / b * b;
  return r != 0 && (r ^ b) < 0 ? r + b : r;
}
uint pm_mod(uint a, uint b) { return a % b; }
int pm_fmod(int a, int b) { return a - a / b * b; }  // GLSL leaves % undefined for negative operands
uint pm_fmod(uint a, uint b) { return a % b; }
// Like floor_divide in NumPy. Uses the exact remainder, since a quotient just below an integer may round up to it.
float pm_floor_divide(float a, float b) {
  precise float r = pm_fmod(a, b), multiple = a - r, q = pm_divide(multiple, b);
  if (r != 0.0 && r < 0.0 != b < 0.0) q -= 1.0;
  float whole = pm_floor(q);
  whole = q - whole > 0.5 ? whole + 1.0 : whole;
  float zero = pm_copysign(0.0, a / b);
  return b == 0.0 ? a / b : q == 0.0 ? zero : whole;
}
// Integer division by 0 gives 0. The hardware never divides by 0, nor INT_MIN by -1.
int pm_floor_divide(int a, int b) {
  int d = b == 0 || b == -1 ? 1 : b, q = a / d;
  return b == 0 ? 0 : b == -1 ? -a : q * d != a && a < 0 != d < 0 ? q - 1 : q;
}
uint pm_floor_divide(uint a, uint b) { return b == 0u ? 0u : a / max(b, 1u); }

// Shifts by a negative amount or by 32 or more give 0, or -1 for right shifts of negative numbers.
uint pm_shift_left(uint a, uint b) { return b < 32u ? a << b : 0u; }
uint pm_shift_right(uint a, uint b) { return b < 32u ? a >> b : 0u; }
int pm_shift_left(int a, int b) { return uint(b) < 32u ? a << b : 0; }
int pm_shift_right(int a, int b) { return a >> (uint(b) < 32u ? b : 31); }

// Exact integer powers by squaring, modulo 2^32. Negative y gives 0, except for x = 1 and -1.
uint pm_pow(uint x, uint y) {
  uint result = 1u;
  for (; y != 0u; y >>= 1) {
    if ((y & 1u) != 0u) result *= x;
    x *= x;
  }
  return result;
}
int pm_pow(int x, int y) {
  int power = int(pm_pow(uint(x), uint(max(y, 0))));
  return y >= 0 ? power : x == 1 ? 1 : x == -1 ? ((y & 1) == 0 ? 1 : -1) : 0;
}

#include "include/math_64bit.glsl"

// Float to integer: truncates and saturates; NaN gives 0.
#define PM_DEFINE_TO_INTEGER(name, result, real, low, end, lowest, highest) \
  result name(real x) { return x >= end ? highest : x > low ? result(x) : x <= low ? lowest : result(0); }
PM_DEFINE_TO_INTEGER(pm_to_int, int, float, -2147483648.0, 2147483648.0, (-2147483647 - 1), 2147483647)
PM_DEFINE_TO_INTEGER(pm_to_uint, uint, float, 0.0, 4294967296.0, 0u, 0xffffffffu)
// Integer to a float power: exact modulo 2^32 if the exponent is a whole number below 2^24 in magnitude; else the float power, truncated.
int pm_pow(int x, float y) { return pm_trunc(y) == y && abs(y) < 16777216.0 ? pm_pow(x, int(y)) : pm_to_int(pm_pow(float(x), y)); }
uint pm_pow(uint x, float y) {
  const bool is_whole = pm_trunc(y) == y && abs(y) < 16777216.0;
  const uint whole = y >= 0.0 ? pm_pow(x, uint(is_whole ? y : 0.0)) : x == 1u ? 1u : 0u;
  return is_whole ? whole : pm_to_uint(pm_pow(pm_float(x), y));
}
#ifdef PM_HAS_FLOAT64
PM_DEFINE_TO_INTEGER(pm_to_int, int, double, -2147483648.0LF, 2147483648.0LF, (-2147483647 - 1), 2147483647)
PM_DEFINE_TO_INTEGER(pm_to_uint, uint, double, 0.0LF, 4294967296.0LF, 0u, 0xffffffffu)
#endif
#ifdef PM_HAS_INT64
#define PM_LOWEST (-9223372036854775807L - 1L)
PM_DEFINE_TO_INTEGER(pm_to_int64_t, int64_t, float, -9223372036854775808.0, 9223372036854775808.0, PM_LOWEST, 9223372036854775807L)
PM_DEFINE_TO_INTEGER(pm_to_uint64_t, uint64_t, float, 0.0, 18446744073709551616.0, 0UL, 0xffffffffffffffffUL)
int64_t pm_pow(int64_t x, float y) {
  return pm_trunc(y) == y && abs(y) < 16777216.0 ? pm_pow(x, int64_t(y)) : pm_to_int64_t(pm_pow(float(x), y));
}
uint64_t pm_pow(uint64_t x, float y) {
  const bool is_whole = pm_trunc(y) == y && abs(y) < 16777216.0;
  const uint64_t whole = y >= 0.0 ? pm_pow(x, uint64_t(is_whole ? y : 0.0)) : x == 1UL ? 1UL : 0UL;
  return is_whole ? whole : pm_to_uint64_t(pm_pow(float(x), y));
}
#ifdef PM_HAS_FLOAT64
PM_DEFINE_TO_INTEGER(pm_to_int64_t, int64_t, double, -9223372036854775808.0LF, 9223372036854775808.0LF, PM_LOWEST, 9223372036854775807L)
PM_DEFINE_TO_INTEGER(pm_to_uint64_t, uint64_t, double, 0.0LF, 18446744073709551616.0LF, 0UL, 0xffffffffffffffffUL)
#endif
#endif

#endif
