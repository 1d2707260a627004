// Elementary functions of doubles, which drivers lack. Errors are at most a few units in the last place of the result, or of 1 where it
// is said; NaN in, NaN out. Part of math.glsl.
double pm_double_infinity() { return packDouble2x32(uvec2(0u, 0x7ff00000u)); }
double pm_double_nan() { return packDouble2x32(uvec2(0u, 0x7ff80000u)); }

// x = m 2^e with m in sqrt(1/2) .. sqrt(2), for a finite x > 0.
double pm_double_split(double x, out int e) {
  e = 0;
  if (x < 2.2250738585072014e-308LF) {  // below the normal numbers
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
  if (pm_isnan(x) || x < 0.0LF) return pm_double_nan();
  if (x == 0.0LF) return -pm_double_infinity();
  if (pm_isinf(x)) return x;
  int e;
  const double m = pm_double_split(x, e);
  // log(m) = 2 atanh(s): a series in s^2, which is below 0.0295.
  const double f = m - 1.0LF, s = f / (2.0LF + f), z = s * s;
  double tail = 0.0LF;
  for (int n = 25; n >= 3; n -= 2) tail = tail * z + 1.0LF / double(n);
  // 2 s = f - s f, of which f is exact.
  precise double y = double(e) * 0.693147180369123816490LF + (f - (s * (f - 2.0LF * z * tail) - double(e) * 1.90821492927058770002e-10LF));
  return y;
}

double pm_log1p(double x) {
  precise double u = 1.0LF + x;
  if (u == 1.0LF || pm_isinf(x)) return x < 0.0LF && pm_isinf(x) ? pm_double_nan() : x;
  precise double rounded = u - 1.0LF;
  return u == 0.0LF ? -pm_double_infinity() : pm_log(u) * (x / rounded);
}
double pm_softplus(double x) { return pm_isnan(x) ? x : (x > 0.0LF ? x : 0.0LF) + pm_log1p(pm_exp(-abs(x))); }

double pm_tan(double x) { return x == 0.0LF ? x : pm_sin(x) / pm_cos(x); }

// Halved twice, the angle is below pi / 16: a series in tan^2 below 0.04.
double pm_atan(double x) {
  if (pm_isnan(x)) return x;
  const double a = abs(x);
  double t = a > 1.0LF ? 1.0LF / a : a;
  for (int i = 0; i < 2; ++i) t /= 1.0LF + sqrt(1.0LF + t * t);
  const double z = -t * t;
  double sum = 0.0LF;
  for (int n = 27; n >= 3; n -= 2) sum = (sum + 1.0LF / double(n)) * z;
  const double angle = 4.0LF * (t + t * sum);
  return pm_copysign(a > 1.0LF ? 1.57079632679489661923LF - angle : angle, x);
}
double pm_asin(double x) {
  if (abs(x) > 1.0LF) return pm_double_nan();
  return abs(x) == 1.0LF ? pm_copysign(1.57079632679489661923LF, x) : pm_atan(x / sqrt((1.0LF - x) * (1.0LF + x)));
}
double pm_acos(double x) {
  if (abs(x) > 1.0LF) return pm_double_nan();
  return x == -1.0LF ? 3.14159265358979323846LF : 2.0LF * pm_atan(sqrt((1.0LF - x) / (1.0LF + x)));
}

double pm_sinh(double x) {
  const double a = abs(x);
  if (a > 700.0LF) {
    const double root = pm_exp(0.5LF * a);
    return pm_copysign(0.5LF * root * root, x);
  }
  const double e = pm_expm1(a);
  return pm_isnan(x) || x == 0.0LF ? x : pm_copysign(0.5LF * (e + e / (e + 1.0LF)), x);
}
double pm_cosh(double x) {
  const double root = pm_exp(0.5LF * abs(x)), e = root * root;
  return abs(x) > 700.0LF ? 0.5LF * root * root : 0.5LF * (e + 1.0LF / e);
}
double pm_asinh(double x) {
  const double a = abs(x);
  if (pm_isnan(x) || x == 0.0LF || pm_isinf(x)) return x;
  return pm_copysign(a > 1e150LF ? pm_log(a) + 0.693147180559945309417LF : pm_log1p(a + a * a / (1.0LF + sqrt(1.0LF + a * a))), x);
}
double pm_acosh(double x) {
  const double t = x - 1.0LF;
  if (pm_isnan(x) || t < 0.0LF) return pm_double_nan();
  return x > 1e150LF ? pm_log(x) + 0.693147180559945309417LF : pm_log1p(t + sqrt(2.0LF * t + t * t));
}
double pm_atanh(double x) {
  const double a = abs(x);
  if (pm_isnan(x) || x == 0.0LF) return x;
  if (a >= 1.0LF) return a == 1.0LF ? pm_copysign(pm_double_infinity(), x) : pm_double_nan();
  return pm_copysign(0.5LF * pm_log1p(2.0LF * a / (1.0LF - a)), x);
}

// Up to 3 a series of positive terms, beyond 1 less a continued fraction; a few units in the last place of 1.
double pm_erf(double x) {
  if (pm_isnan(x) || x == 0.0LF) return x;
  const double a = abs(x), z = a * a;
  if (a > 6.0LF) return pm_copysign(1.0LF, x);
  if (a < 3.0LF) {
    double term = 1.0LF, sum = 1.0LF;
    for (int n = 1; n < 64; ++n) {
      term *= 2.0LF * z / double(2 * n + 1);
      sum += term;
    }
    return 1.12837916709551257390LF * x * pm_exp(-z) * sum;
  }
  double fraction = 1.0LF;
  for (int n = 64; n > 0; --n) fraction = 1.0LF + double(n) / (2.0LF * z * fraction);
  return pm_copysign(1.0LF - 0.564189583547756286948LF * pm_exp(-z) / (a * fraction), x);
}

// As those of vec2 and float in reduce.comp.
dvec2 pm_merge_exponentials(dvec2 s, dvec2 t) {
  const double largest = pm_max(s.x, t.x);
  if (pm_isinf(largest)) return dvec2(largest, largest > 0.0LF ? 1.0LF : 0.0LF);
  return dvec2(largest, s.y * pm_exp(s.x - largest) + t.y * pm_exp(t.x - largest));
}
dvec2 pm_add_exponential(dvec2 s, double v) {
  const double decay = pm_exp(s.x == v ? 0.0LF : -abs(v - s.x));
  return dvec2(pm_max(s.x, v), v > s.x ? s.y * decay + 1.0LF : s.y + decay);
}

// A few units in the last place of 1.
double pm_normal_cdf(double x) { return 0.5LF + 0.5LF * pm_erf(x * 0.70710678118654752440LF); }

// a + b as the nearest double and what that leaves out.
dvec2 pm_double_sum(double a, double b) {
  precise double sum = a + b, part = sum - a;
  precise double rest = (a - (sum - part)) + (b - part);
  return dvec2(sum, rest);
}
// The upper 26 bits, whose products are exact.
double pm_double_high(double x) {
  const uvec2 word = unpackDouble2x32(x);
  return packDouble2x32(uvec2(word.x & 0xf8000000u, word.y));
}
dvec2 pm_double_product(double a, double b) {
  const double high_a = pm_double_high(a), high_b = pm_double_high(b);
  precise double low_a = a - high_a, low_b = b - high_b, product = a * b;
  precise double rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
  return dvec2(product, rest);
}
// log(x) for a finite x > 0 as a sum of two doubles, to 2^-64 of it: 2 atanh(s), of whose series the first two terms are such sums.
dvec2 pm_double_log(double x) {
  int e;
  const double m = pm_double_split(x, e);
  const dvec2 d = pm_double_sum(m, 1.0LF);
  precise double f = m - 1.0LF, s = f / d.x;
  const dvec2 back = pm_double_product(s, d.x), z = pm_double_product(s, s);
  precise double s_low = (((f - back.x) - back.y) - s * d.y) / d.x, z_low = z.y + 2.0LF * s * s_low;
  double tail = 0.0LF;
  for (int n = 27; n >= 5; n -= 2) tail = tail * z.x + 1.0LF / double(n);
  const dvec2 c = pm_double_sum(0.33333333333333331483LF, z.x * tail);
  precise double c_low = c.y + 1.8503717077085941e-17LF;
  const dvec2 w = pm_double_product(z.x, c.x);
  precise double w_low = w.y + (z.x * c_low + z_low * c.x);
  const dvec2 t = pm_double_product(s, w.x);
  precise double t_low = t.y + (s * w_low + s_low * w.x);
  const dvec2 half_log = pm_double_sum(s, t.x), sum = pm_double_sum(double(e) * 0.693147180369123816490LF, 2.0LF * half_log.x);
  precise double low = sum.y + (2.0LF * (half_log.y + (s_low + t_low)) + double(e) * 1.90821492927058770002e-10LF);
  return pm_double_sum(sum.x, low);
}
// |x|^y for finite x != 0 and finite y.
double pm_pow_core(double x, double y) {
  const dvec2 l = pm_double_log(abs(x));
  y = abs(y) > 1e25LF ? pm_copysign(1e25LF, y) : y;
  const dvec2 product = pm_double_product(l.x, y);
  if (product.x > 1000.0LF) return pm_double_infinity();
  if (product.x < -1000.0LF) return 0.0LF;
  precise double low = product.y + l.y * y, power = pm_exp(product.x) * (1.0LF + low);
  return power;
}
// A few units in the last place; special cases as those of floats.
double pm_pow(double x, double y) {
  if (y == 0.0LF || x == 1.0LF) return 1.0LF;
  if (y == 1.0LF) return x;
  if (y == 2.0LF) return x * x;
  if (pm_isnan(x) || pm_isnan(y)) return pm_double_nan();
  const bool is_integer = pm_floor(y) == y, is_odd = is_integer && pm_floor(y * 0.5LF) != y * 0.5LF;
  const bool is_negative = (unpackDouble2x32(x).y & 0x80000000u) != 0u;
  double magnitude;
  if (pm_isinf(y)) return abs(x) == 1.0LF ? 1.0LF : abs(x) > 1.0LF == y > 0.0LF ? pm_double_infinity() : 0.0LF;
  if (x == 0.0LF || pm_isinf(x))
    magnitude = (x == 0.0LF) == (y > 0.0LF) ? 0.0LF : pm_double_infinity();
  else if (is_negative && !is_integer)
    return pm_double_nan();
  else
    magnitude = pm_pow_core(x, y);
  return is_negative && is_odd ? -magnitude : magnitude;
}
