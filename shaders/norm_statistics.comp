// Mean and squared deviation of each channel over a stretch of pixels, numbers shifted by the stretch's first, so that large means lose
// nothing. The stretches are put together by norm_combine (Chan, Golub, LeVeque 1983). PLANES: planes are dense and of whole fours, and
// a workgroup takes a stretch; else an invocation does.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#if PLANES
#define TEAM WORKGROUP
layout(local_size_x = TEAM) in;
#include "include/team.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
#else
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { sfp x[]; };
#endif
layout(binding = 1) writeonly buffer Y { vec2 y[]; };  // [images][stretches][channels]: mean, sum of squared deviations
layout(push_constant) uniform parameter {
  uint images, channels, pixels;
  uint stretch, stretches;  // pixels a stretch, stretches an image
#if !PLANES
  uint width;               // pixel = row * width + column
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
#endif
  uint x_offset;
} p;

#if PLANES
shared vec2 meeting[TEAM + 16];
PM_GATHER(gather, vec2, meeting, pm_sum)
#endif

void main() {
  uint rest = grid_group();
#if !PLANES
  rest = rest * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#endif
  if (rest >= p.images * p.stretches * p.channels) return;
  const uint id = rest;
  const uint channel = rest % p.channels; rest /= p.channels;
  const uint begin = rest % p.stretches * p.stretch, image = rest / p.stretches;
  const uint end = min(begin + p.stretch, p.pixels);
  const float count = float(end - begin);
#if PLANES
  const uint base = p.x_offset / 4u + (image * p.channels + channel) * (p.pixels / 4u);
  const float shift = pm_load_vec4(x, base + begin / 4u).x;
  vec2 sums = vec2(0.0);
  for (uint quad = begin / 4u + gl_LocalInvocationID.x; quad < end / 4u; quad += TEAM) {
    precise vec4 v = pm_load_vec4(x, base + quad) - shift;
    sums += vec2((v.x + v.y) + (v.z + v.w), dot(v, v));
  }
  sums = gather(sums);
  const float sum = sums.x, squares = sums.y;
#else
  const uint base = p.x_offset + image * p.x_stride_n + channel * p.x_stride_c;
  uint row = begin / p.width, column = begin - row * p.width;
  const float shift = pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w);
  float sum = 0.0, squares = 0.0;
  for (uint pixel = begin; pixel < end; ++pixel) {
    precise float v = pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w) - shift;
    sum += v;
    squares += v * v;
    if (++column == p.width) { column = 0u; ++row; }
  }
#endif
  const float mean = pm_divide(sum, count);
#if PLANES
  if (gl_LocalInvocationID.x == 0u)
#endif
    y[id] = vec2(mean + shift, max(squares - sum * mean, 0.0));
}
