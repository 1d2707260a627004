// Driver test: runs operations that the engine depends on, for inputs where implementations may differ. The host compares the results.
//
// a, b: float inputs; n: integers. y: [trial][point], then the number of iterations of a long loop.
// One workgroup of 64. The first invocation runs the long loop last, because a driver that ends long loops may count the iterations of all
// loops and invocations.
//
// For all devices. Run by cpp/dispatch/kernel/driver_bug_test.cpp, which caches the outcome.
#version 450
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) readonly buffer N { int n[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter {
  uint points;
  uint small;  // bits of a subnormal number
  uint turns;  // number of iterations of the long loop
} p;

void store_result(uint trial, uint i, float v) { y[trial * p.points + i] = v; }

// Returns how many of seven operations do not treat v as zero.
float count_kept_denormals(float v) {
  uint kept = 0u;
  precise float doubled = v + v, large = v * 1073741824.0, half_of = v * 0.5;
  if (v > 0.0) ++kept;
  if (-v < 0.0) ++kept;
  if (v != 0.0) ++kept;
  if (floatBitsToUint(doubled) != 0u) ++kept;
  if (floatBitsToUint(large) != 0u) ++kept;
  if (floatBitsToUint(half_of) != 0u) ++kept;
  if (floatBitsToUint(sqrt(v)) != 0u) ++kept;
  return float(kept);
}

float run_long_loop() {
  uint turns = 0u;
  for (uint k = 0u; k < p.turns; ++k) turns += uint(n[k % p.points] | 1) & 1u;
  return float(turns);
}

void run_trials(uint i) {
  precise float sum = a[i] + b[i], difference = a[i] - b[i], product = a[i] * b[i], quotient = a[i] / b[i], root = sqrt(abs(a[i]));
  store_result(0u, i, sum);
  store_result(1u, i, difference);
  store_result(2u, i, product);
  store_result(3u, i, float(n[i]));
  store_result(4u, i, float(uint(n[i])));
  store_result(5u, i, float(int(a[i])));
  store_result(6u, i, quotient);
  store_result(7u, i, root);
  store_result(8u, i, floor(a[i]));
  store_result(9u, i, ceil(a[i]));
  store_result(10u, i, trunc(a[i]));
  store_result(11u, i, roundEven(a[i]));
  precise float remainder = fma(a[i], b[i], -product);
  store_result(12u, i, remainder);
  float whole[4], rounding_error[4];
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    const float v = a[(i + k) % p.points];
    precise float shifted = v + 12582912.0, back = shifted - 12582912.0, next = 1.0 + v, rest = v - (next - 1.0);
    whole[k] = back;
    rounding_error[k] = rest;
  }
  store_result(13u, i, whole[i & 3u]);
  store_result(14u, i, rounding_error[i & 3u]);
  store_result(15u, i, count_kept_denormals(uintBitsToFloat(p.small)));
}

// The long loop runs last: a driver that ends it may count the iterations of all loops, including other invocations'.
void main() {
  const uint first = gl_LocalInvocationID.x;
  for (uint i = first; i < p.points; i += gl_WorkGroupSize.x) run_trials(i);
  if (first == 0u) y[16u * p.points] = run_long_loop();
}
