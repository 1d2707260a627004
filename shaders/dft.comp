// One pass of a Stockham FFT along the middle axis of [outer, points, inner], of any radix: no bit reversal is needed.
//
// After passes whose radices multiply to `transformed`, z(k, j) is the transform of elements j, j + points / transformed, ... at frequency
// k, at index k * (points / transformed) + j. A pass combines `radix` of them. twiddles: e^(-2 pi i k / points), or their conjugates.
// FIRST: reads x of COMPONENTS (1: real), with zeros past `size`; SYMMETRIC: elements past the middle are conjugates of earlier ones;
// WINDOW: multiplies by window; outer indices are frames of a batch (STFT). LAST: writes the first `num_results` results to y, of RESULT
// components, times `scale`.
// One invocation computes one complex element, as a sum of `radix` products.
//
// For all devices. Selected in cpp/operators/signal/dft.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Twiddles { vec2 twiddles[]; };
#if FIRST
layout(binding = 1) readonly buffer X { sfp x[]; };
#else
layout(binding = 1) readonly buffer X { vec2 x[]; };
#endif
#if LAST
layout(binding = 2) buffer Y { sfp y[]; };
#else
layout(binding = 2) writeonly buffer Y { vec2 y[]; };
#endif
#if WINDOW
layout(binding = 3) readonly buffer W { sfp window[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements, points, num_results, inner;
  uint transformed, radix;
  float scale;
#if FIRST
  uint size, frames, batch_step, frame_step;
  uint x_offset, window_offset;
#endif
#if LAST
  uint y_offset;
#endif
} p;

vec2 complex_multiply(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

// Loads element t of row `outer`, at inner index `i`.
vec2 load_element(uint outer, uint t, uint i) {
#if FIRST
  bool conjugate = false;
#if SYMMETRIC
  conjugate = t > p.points / 2u;
  if (conjugate) t = p.points - t;
#endif
  if (t >= p.size) return vec2(0.0);
  const uint at = p.x_offset + (outer / p.frames * p.batch_step + outer % p.frames * p.frame_step + t * p.inner + i) * COMPONENTS;
#if COMPONENTS == 2
  const vec2 v = vec2(pm_load(x, at), pm_load(x, at + 1u));
#else
  const vec2 v = vec2(pm_load(x, at), 0.0);
#endif
#if WINDOW
  return v * pm_load(window, p.window_offset + t);
#else
  return conjugate ? vec2(v.x, -v.y) : v;
#endif
#else
  return x[(outer * p.points + t) * p.inner + i];
#endif
}

void main() {
  const uint id = grid_invocation();
  if (id >= p.elements) return;
  const uint i = id % p.inner, row = id / p.inner, outer = row / p.num_results, at = row % p.num_results;
  const uint next_transformed = p.transformed * p.radix, stride = p.points / next_transformed;
  const uint k = at / stride, first = k % p.transformed * (p.radix * stride) + at % stride;
  vec2 sum = vec2(0.0);
  for (uint s = 0u; s < p.radix; ++s) sum += complex_multiply(load_element(outer, first + s * stride, i), twiddles[k * s % next_transformed * stride]);
  sum *= p.scale;
#if !LAST
  y[id] = sum;
#elif RESULT == 2
  pm_store2(y, p.y_offset + id * 2u, epilogue(sum.x), epilogue(sum.y));
#else
  pm_store(y, p.y_offset + id, epilogue(sum.x));
#endif
}
