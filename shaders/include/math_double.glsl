// Elementary functions of doubles, which drivers lack. Errors are a few ulp of the result, or of 1 if stated; NaN in, NaN out. Part of
// math.glsl: functions return only at their end and select between computed values.
double pm_double_infinity() { return packDouble2x32(uvec2(0u, 0x7ff00000u)); }
double pm_double_nan() { return packDouble2x32(uvec2(0u, 0x7ff80000u)); }

// Splits x = m 2^e with m in sqrt(1/2) .. sqrt(2), for a finite x > 0.
double pm_double_frexp(double x, out int e) {
  e = 0;
  if (x < 2.2250738585072014e-308LF) {  // subnormal
    x *= 18014398509481984.0LF;
    e = -54;
  }
  uvec2 word = unpackDouble2x32(x);
  e += int(word.y >> 20) - 1023;
  word.y = (word.y & 0xfffffu) | 0x3ff00000u;
  double m = packDouble2x32(word);
  if (m > 1.4142135623730951LF) {
    m *= 0.5LF;
    ++e;
  }
  return m;
}

double pm_log(double x) {
  int e;
  const double m = pm_double_frexp(x > 0.0LF ? x : 1.0LF, e);
  // log(m) = 2 atanh(s), a series in s^2 < 0.0295
  const double f = m - 1.0LF, s = f / (2.0LF + f), z = s * s;
  double tail = 0.0LF;
  for (int n = 25; n >= 3; n -= 2) tail = tail * z + 1.0LF / double(n);
  // 2 s = f - s f, where f is exact
  precise double y = double(e) * 0.693147180369123816490LF + (f - (s * (f - 2.0LF * z * tail) - double(e) * 1.90821492927058770002e-10LF));
  const double infinity = pm_double_infinity(), nan = pm_double_nan();
  const bool is_nan = pm_isnan(x) || x < 0.0LF, is_infinite = pm_isinf(x);
  return is_nan ? nan : x == 0.0LF ? -infinity : is_infinite ? x : y;
}

double pm_log1p(double x) {
  precise double u = 1.0LF + x;
  precise double rounded = u - 1.0LF;
  const double large = pm_log(u), y = large * (x / rounded);
  const bool is_nan = pm_isnan(x), is_infinite = pm_isinf(u);
  return u == 1.0LF || is_nan ? x : is_infinite || u <= 0.0LF ? large : y;
}
double pm_softplus(double x) {
  const double y = pm_log1p(pm_exp(-abs(x)));
  return (x < 0.0LF ? 0.0LF : x) + y;
}

double pm_tan(double x) {
  const double y = pm_sin(x) / pm_cos(x);
  return x == 0.0LF ? x : y;
}

// Halving the angle twice brings it below pi / 16: a series in tan^2 < 0.04.
double pm_atan(double x) {
  const double a = abs(x);
  double t = a > 1.0LF ? 1.0LF / a : a;
  for (int i = 0; i < 2; ++i) t /= 1.0LF + sqrt(1.0LF + t * t);
  const double z = -t * t;
  double sum = 0.0LF;
  for (int n = 27; n >= 3; n -= 2) sum = (sum + 1.0LF / double(n)) * z;
  const double angle = 4.0LF * (t + t * sum);
  const double y = pm_copysign(a > 1.0LF ? 1.57079632679489661923LF - angle : angle, x);
  const bool is_nan = pm_isnan(x);
  return is_nan ? x : y;
}
double pm_asin(double x) {
  const double a = abs(x), y = pm_atan(x / sqrt((1.0LF - x) * (1.0LF + x)));
  const double end = pm_copysign(1.57079632679489661923LF, x), nan = pm_double_nan();
  return a > 1.0LF ? nan : a == 1.0LF ? end : y;
}
double pm_acos(double x) {
  const double y = 2.0LF * pm_atan(sqrt((1.0LF - x) / (1.0LF + x))), nan = pm_double_nan();
  return abs(x) > 1.0LF ? nan : x == -1.0LF ? 3.14159265358979323846LF : y;
}

double pm_sinh(double x) {
  const double a = abs(x), root = pm_exp(0.5LF * a), e = pm_expm1(a > 700.0LF ? 700.0LF : a);
  const double large = 0.5LF * root * root, small = 0.5LF * (e + e / (e + 1.0LF));
  const double y = pm_copysign(a > 700.0LF ? large : small, x);
  const bool is_nan = pm_isnan(x);
  return is_nan || x == 0.0LF ? x : y;
}
double pm_cosh(double x) {
  const double root = pm_exp(0.5LF * abs(x)), e = root * root;
  return abs(x) > 700.0LF ? 0.5LF * root * root : 0.5LF * (e + 1.0LF / e);
}
double pm_asinh(double x) {
  const double a = abs(x), large = pm_log(a) + 0.693147180559945309417LF;
  const double small = pm_log1p(a + a * a / (1.0LF + sqrt(1.0LF + a * a)));
  const double y = pm_copysign(a > 1e150LF ? large : small, x);
  const bool is_nan = pm_isnan(x);
  return is_nan || x == 0.0LF ? x : y;
}
double pm_acosh(double x) {
  const double t = x - 1.0LF, large = pm_log(x) + 0.693147180559945309417LF;
  const double small = pm_log1p(t + sqrt(2.0LF * t + t * t)), nan = pm_double_nan();
  return t < 0.0LF ? nan : x > 1e150LF ? large : small;
}
double pm_atanh(double x) {
  const double a = abs(x), y = pm_copysign(0.5LF * pm_log1p(2.0LF * a / (1.0LF - a)), x);
  const double end = pm_copysign(pm_double_infinity(), x), nan = pm_double_nan();
  const bool is_nan = pm_isnan(x);
  return is_nan || x == 0.0LF ? x : a > 1.0LF ? nan : a == 1.0LF ? end : y;
}

// erf: a series of positive terms below 3, otherwise 1 minus a continued fraction. A few ulp of 1.
double pm_erf(double x) {
  const double a = abs(x), near = a < 3.0LF ? a : 3.0LF, far = a < 3.0LF ? 3.0LF : a > 6.0LF ? 6.0LF : a;
  double term = 1.0LF, sum = 1.0LF;
  for (int n = 1; n < 64; ++n) {
    term *= 2.0LF * near * near / double(2 * n + 1);
    sum += term;
  }
  double fraction = 1.0LF;
  for (int n = 64; n > 0; --n) fraction = 1.0LF + double(n) / (2.0LF * far * far * fraction);
  const double e = pm_exp(a < 3.0LF ? -near * near : -far * far);
  const double small = 1.12837916709551257390LF * near * e * sum, large = 1.0LF - 0.564189583547756286948LF * e / (far * fraction);
  const double y = pm_copysign(a < 3.0LF ? small : a > 6.0LF ? 1.0LF : large, x);
  const bool is_nan = pm_isnan(x);
  return is_nan || x == 0.0LF ? x : y;
}

// Double versions of the functions in reduce.comp.
dvec2 pm_merge_exponentials(dvec2 s, dvec2 t) {
  const double largest = pm_max(s.x, t.x);
  const double sum = s.y * pm_exp(s.x - largest) + t.y * pm_exp(t.x - largest);
  const bool is_infinite = pm_isinf(largest);
  return dvec2(largest, !is_infinite ? sum : largest > 0.0LF ? 1.0LF : 0.0LF);
}
dvec2 pm_add_exponential(dvec2 s, double v) {
  const double decay = pm_exp(s.x == v ? 0.0LF : -abs(v - s.x)), largest = pm_max(s.x, v);
  return dvec2(largest, v > s.x ? s.y * decay + 1.0LF : s.y + decay);
}

// A few ulp of 1.
double pm_normal_cdf(double x) { return 0.5LF + 0.5LF * pm_erf(x * 0.70710678118654752440LF); }

// Returns a + b and its rounding error.
dvec2 pm_double_two_sum(double a, double b) {
  precise double sum = a + b, part = sum - a;
  precise double rest = (a - (sum - part)) + (b - part);
  return dvec2(sum, rest);
}
// Returns the upper 26 significant bits. Products of two such numbers are exact.
double pm_double_high(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return packDouble2x32(uvec2(word.x & 0xf8000000u, word.y));
}
dvec2 pm_double_two_product(double a, double b) {
  const double high_a = pm_double_high(a), high_b = pm_double_high(b);
  precise double low_a = a - high_a, low_b = b - high_b, product = a * b;
  precise double rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
  return dvec2(product, rest);
}
// log(x) for finite x > 0 as a double-double with relative error 2^-64: 2 atanh(s), whose first two series terms are double-doubles too.
dvec2 pm_double_log(double x) {
  int e;
  const double m = pm_double_frexp(x, e);
  const dvec2 d = pm_double_two_sum(m, 1.0LF);
  precise double f = m - 1.0LF, s = f / d.x;
  const dvec2 back = pm_double_two_product(s, d.x), z = pm_double_two_product(s, s);
  precise double s_low = (((f - back.x) - back.y) - s * d.y) / d.x, z_low = z.y + 2.0LF * s * s_low;
  double tail = 0.0LF;
  for (int n = 27; n >= 5; n -= 2) tail = tail * z.x + 1.0LF / double(n);
  const dvec2 c = pm_double_two_sum(0.33333333333333331483LF, z.x * tail);
  precise double c_low = c.y + 1.8503717077085941e-17LF;
  const dvec2 w = pm_double_two_product(z.x, c.x);
  precise double w_low = w.y + (z.x * c_low + z_low * c.x);
  const dvec2 t = pm_double_two_product(s, w.x);
  precise double t_low = t.y + (s * w_low + s_low * w.x);
  const dvec2 half_log = pm_double_two_sum(s, t.x), sum = pm_double_two_sum(double(e) * 0.693147180369123816490LF, 2.0LF * half_log.x);
  precise double low = sum.y + (2.0LF * (half_log.y + (s_low + t_low)) + double(e) * 1.90821492927058770002e-10LF);
  return pm_double_two_sum(sum.x, low);
}
// |x|^y for finite x != 0 and finite y.
double pm_pow_core(double x, double y) {
  const dvec2 l = pm_double_log(abs(x));
  y = y > 1e25LF ? 1e25LF : y < -1e25LF ? -1e25LF : y;
  const dvec2 product = pm_double_two_product(l.x, y);
  precise double low = product.y + l.y * y, power = pm_exp(product.x) * (1.0LF + low);
  const double infinity = pm_double_infinity();
  return product.x > 1000.0LF ? infinity : product.x < -1000.0LF ? 0.0LF : power;
}
// A few ulp; special cases as for floats.
double pm_pow(double x, double y) {
  const double whole = pm_floor(y), half_whole = pm_floor(y * 0.5LF);
  const bool is_integer = whole == y, is_odd = is_integer && half_whole != y * 0.5LF;
  const bool is_negative = (unpackDouble2x32(x).y & 0x80000000u) != 0u, x_infinite = pm_isinf(x), y_infinite = pm_isinf(y);
  const bool is_nan = pm_isnan(x) || pm_isnan(y), is_end = x == 0.0LF || x_infinite;
  const double a = abs(x), infinity = pm_double_infinity(), nan = pm_double_nan();
  const double power = pm_pow_core(is_end || is_nan ? 1.0LF : x, y_infinite || is_nan ? 1.0LF : y);
  const double end = (x == 0.0LF) == (y > 0.0LF) ? 0.0LF : infinity;
  const double limit = a == 1.0LF ? 1.0LF : a > 1.0LF == y > 0.0LF ? infinity : 0.0LF;
  const double magnitude = is_end ? end : power;
  const double result = y_infinite ? limit : is_negative && !is_integer && !is_end ? nan : is_negative && is_odd ? -magnitude : magnitude;
  return y == 0.0LF || x == 1.0LF ? 1.0LF : y == 1.0LF ? x : y == 2.0LF ? x * x : is_nan ? nan : result;
}
