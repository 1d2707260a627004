// Trigonometric functions and their inverses for all finite numbers. Part of math.glsl: functions return only at their end.
// 2/pi in binary, after 32 zero bits, in 32-bit words. A chain of selects: drivers that unroll or branch for an indexed table take a second
// more to compile each call.
uint pm_two_over_pi(uint word) {
  return word < 4u ? (word < 2u ? (word == 0u ? 0u : 0xa2f9836eu) : (word == 2u ? 0x4e441529u : 0xfc2757d1u))
                   : (word < 6u ? (word == 4u ? 0xf534ddc0u : 0xdb629599u) : (word == 6u ? 0x3c439041u : 0xfe5163abu));
}

// pm_reduce for t >= 256: multiplies the mantissa by the 96 relevant bits of 2/pi (Payne and Hanek).
float pm_reduce_large(float t, out int quadrant) {
  uint bits = floatBitsToUint(t), mantissa = (bits & 0x007fffffu) | 0x00800000u;
  uint skip = (bits >> 23) - 120u, word = skip >> 5, shift = skip & 31u;
  uint next = pm_two_over_pi(word + 1u), last = pm_two_over_pi(word + 2u);
  uint a = pm_two_over_pi(word) << shift, b = next << shift, c = last << shift;
  if (shift != 0u) {
    a |= next >> (32u - shift);
    b |= last >> (32u - shift);
    c |= pm_two_over_pi(word + 3u) >> (32u - shift);
  }
  uint high, low, unused, middle;
  umulExtended(c, mantissa, middle, unused);
  umulExtended(b, mantissa, high, low);
  low += middle;
  high += a * mantissa + (low < middle ? 1u : 0u);
  quadrant = int(high >> 30) + int(high >> 29 & 1u);
  high = high << 2 | low >> 30;
  low = low << 2;
  bool negative = (high & 0x80000000u) != 0u;
  if (negative) {
    low = ~low + 1u;
    high = ~high + (low == 0u ? 1u : 0u);
  }
  float r = (float(high) * 2.32830644e-10 + float(low) * 5.42101086e-20) * 1.57079633;
  return negative ? -r : r;
}

// t = quadrant pi/2 + r with |r| <= pi/4, for t >= 0.
float pm_reduce(float t, out int quadrant) {
  precise float r;
  if (t >= 256.0) {
    r = pm_reduce_large(t, quadrant);
  } else {
    float k = floor(t * 0.636619772 + 0.5);
    quadrant = int(k);
    r = ((t - k * 1.57073975) - k * 5.65797091e-05) - k * 9.92088189e-10;
    r = r - k * 5.39030295e-15;
  }
  return r;
}
float pm_sin_core(float r) {
  float z = r * r;
  return r + r * z * (-0.166666672 + z * (0.00833333191 + z * (-0.000198400405 + z * 2.72438911e-06)));
}
float pm_cos_core(float r) {
  float z = r * r;
  return 1.0 + z * (-0.5 + z * (0.0416666679 + z * (-0.00138888881 + z * (2.48005617e-05 + z * -2.72959113e-07))));
}

// 3 ulp, for all finite x.
float pm_sin(float x) {
  int quadrant;
  float r = pm_reduce(abs(x), quadrant);
  float s = pm_sin_core(r), c = pm_cos_core(r);
  float y = (quadrant & 1) == 0 ? s : c;
  return !pm_is_finite(x) ? pm_nan : (quadrant & 2) == 0 == (x >= 0.0) ? y : -y;
}
float pm_cos(float x) {
  int quadrant;
  float r = pm_reduce(abs(x), quadrant);
  float s = pm_sin_core(r), c = pm_cos_core(r);
  float y = (quadrant & 1) == 0 ? c : s;
  return !pm_is_finite(x) ? pm_nan : ((quadrant + 1) & 2) == 0 ? y : -y;
}
// 5 ulp.
float pm_tan(float x) {
  int quadrant;
  float r = pm_reduce(abs(x), quadrant), s = pm_sin_core(r), c = pm_cos_core(r);
  float y = (quadrant & 1) == 0 ? s / c : -c / s;
  return !pm_is_finite(x) ? pm_nan : x >= 0.0 ? y : -y;
}

// asin(s) - s for 0 <= s <= 1/2, z = s^2.
float pm_asin_tail(float s, float z) {
  float p = 0.0311330538 + z * (0.0170000177 + z * 0.0339312553);
  return s * z * (0.166666657 + z * (0.0750010312 + z * (0.0445965342 + z * p)));
}
// 3 ulp; NaN outside -1 .. 1.
float pm_asin(float x) {
  float t = abs(x), z = (1.0 - t) * 0.5, s = sqrt(z);
  float small = x + pm_asin_tail(x, x * x), large = pm_copysign(1.57079633 - 2.0 * (s + pm_asin_tail(s, z)), x);
  return t <= 0.5 ? small : t <= 1.0 ? large : pm_nan;
}
float pm_acos(float x) {
  float t = abs(x);
  precise float small = 1.57079633 - (x + (pm_asin_tail(x, x * x) + 4.37113883e-08));
  float z = (1.0 - t) * 0.5, s = sqrt(z), y = 2.0 * (s + pm_asin_tail(s, z));
  precise float large = 3.14159265 - (y + 8.74227766e-08);
  return t <= 0.5 ? small : !(t <= 1.0) ? pm_nan : x > 0.0 ? y : large;
}
// 3 ulp.
float pm_atan(float x) {
  float t = abs(x), offset = 0.0;
  if (t > 2.41421356) {
    offset = 1.57079633;
    t = -1.0 / t;
  } else if (t > 0.414213562) {
    offset = 0.785398163;
    t = (t - 1.0) / (t + 1.0);
  }
  float z = t * t;
  float tail = t * z * (-0.333333333 + z * (0.199995592 + z * (-0.142644823 + z * (0.107485928 + z * -0.064659521))));
  float y = pm_copysign(offset + (t + tail), x);
  return pm_isnan(x) ? x : y;
}
