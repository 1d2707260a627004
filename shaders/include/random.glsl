// Counter-based random numbers: Philox 4x32-10 of J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). Block `counter` depends only on its index, so any invocation can compute any block. Results are identical on all
// devices: integers, and floats computed with additions and multiplications only, which every device rounds alike.
#ifndef PM_RANDOM_GLSL
#define PM_RANDOM_GLSL

uvec4 pm_philox(uvec4 counter, uvec2 key) {
  for (int i = 0; i < 10; ++i) {
    uint high_0, low_0, high_1, low_1;
    umulExtended(0xD2511F53u, counter.x, high_0, low_0);
    umulExtended(0xCD9E8D57u, counter.z, high_1, low_1);
    counter = uvec4(high_1 ^ counter.y ^ key.x, low_1, high_0 ^ counter.w ^ key.y, low_0);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// Returns a uniform number in [0, 1), a multiple of 2^-24.
float pm_uniform(uint bits) { return float(bits >> 8) * 5.9604644775390625e-8; }

// log(u) for 0 < u <= 1.
float pm_uniform_log(float u) {
  const int e = int(floatBitsToUint(u) - 0x3f3504f3u) >> 23;
  precise float t = uintBitsToFloat(floatBitsToUint(u) - (uint(e) << 23)) - 1.0;
  const float c[9] = float[](-0.07866667956113815, 0.12821748852729797, -0.131016343832016, 0.1418900042772293, -0.1662759929895401,
                             0.2000196874141693, -0.2500077188014984, 0.33333322405815125, -0.4999999701976776);
  precise float y = c[0];
  for (int i = 1; i < 9; ++i) y = y * t + c[i];
  y = t + t * t * y;
  y = y + float(e) * 0.693147182464599609375;
  return y;
}

// Square root with identical results on every device: a bit-trick estimate of 1 / sqrt(s) and four Newton steps.
float pm_exact_sqrt(float s) {
  precise float y = uintBitsToFloat(0x5f3759dfu - (floatBitsToUint(s) >> 1));
  for (int i = 0; i < 4; ++i) y = y * (1.5 - 0.5 * s * y * y);
  precise float root = s * y;
  return root;
}

// cos and sin of 2 pi angle / 2^24.
vec2 pm_cos_sin(uint angle) {
  precise float f = float(angle & 0x3fffffu) * 2.384185791015625e-7, z = f * f;
  const float a[5] = float[](0.0001516751217423007, -0.004674150608479977, 0.07968991994857788, -0.6459637880325317, 1.5707963705062866);
  const float b[6] = float[](-2.3824535674066283e-05, 0.0009177238680422306, -0.02086268737912178, 0.2536693215370178,
                             -1.2337005138397217, 1.0);
  precise float s = a[0], c = b[0];
  for (int i = 1; i < 5; ++i) s = s * z + a[i];
  for (int i = 1; i < 6; ++i) c = c * z + b[i];
  s = s * f;
  const vec2 rotated = (angle >> 22 & 1u) == 0u ? vec2(c, s) : vec2(-s, c);
  return (angle >> 23 & 1u) == 0u ? rotated : -rotated;
}

// Two standard normal samples (Box-Muller) from 32 bits for the radius and 24 for the angle; |x| is at most 6.7.
vec2 pm_normal(uint distance, uint angle) {
  precise float u = float(distance >> 8) * 5.9604644775390625e-8 + float((distance & 0xffu) + 1u) * 2.3283064365386963e-10;
  precise float s = -2.0 * pm_uniform_log(u);
  precise vec2 pair = pm_exact_sqrt(s > 0.0 ? s : 0.0) * pm_cos_sin(angle >> 8);
  return pair;
}

#endif
