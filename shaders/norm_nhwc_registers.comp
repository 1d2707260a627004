// InstanceNormalization of channels-last tensors in one dispatch, with all pixels kept in registers: y = (x - mean) * factor + bias.
//
// x, y: [images, pixels, channels], channels fastest. TEAM invocations process four channels of an image, HELD pixels each, and reduce
// means and squares of the four channels together (include/vec4_reduce.glsl). HOLDS_HALVES: the registers hold fp16.
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp (held_channels) if the pixels
// fit registers.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = TEAM * TEAMS) in;
#include "include/vec4_reduce.glsl"
#if HOLDS_HALVES
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
#endif
layout(binding = 1) readonly buffer Scale { vec4 scale[]; };
layout(binding = 2) writeonly buffer Y { sfpvec4 y[]; };
layout(binding = 3) readonly buffer Bias { vec4 bias[]; };
layout(push_constant) uniform parameter {
  uint images, fours, pixels;  // fours: channels / 4
  uint x_stride_n, x_stride_w, y_stride_n, y_stride_w;
  float epsilon;
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;
#if RESIDUAL
layout(binding = 4) readonly buffer R { sfpvec4 residual[]; };
vec4 finished(vec4 v, uint at) { return epilogue(v, pm_load_vec4(residual, (at - p.y_offset + p.residual_offset) / 4u)); }
#else
#define finished(v, at) epilogue(v)
#endif

#if HOLDS_HALVES
uvec2 held[HELD];
vec4 held_four(uint k) { return vec4(pm_unpack_halves(held[k].x), pm_unpack_halves(held[k].y)); }
#else
vec4 held[HELD];
vec4 held_four(uint k) { return held[k]; }
#endif

#define FOR_HELD(k) [[unroll]] for (uint k = 0u; k < HELD; ++k)
#define PIXEL(k) (TEAM_MEMBER + (k) * TEAM)
#define HAS_PIXEL(k) (is_there && PIXEL(k) < p.pixels)

vec4 mean_of(vec4 sum) {
  const float count = float(p.pixels);
  return vec4(pm_divide(sum.x, count), pm_divide(sum.y, count), pm_divide(sum.z, count), pm_divide(sum.w, count));
}

void main() {
  const uint number = grid_group() * TEAMS + TEAM_NUMBER, image = number / p.fours, four = number - image * p.fours;
  const bool is_there = image < p.images;  // surplus groups only take part in the barriers
  const uint from = p.x_offset + image * p.x_stride_n + four * 4u;
  FOR_HELD(k) {
#if HOLDS_HALVES
    held[k] = HAS_PIXEL(k) ? x[(from + PIXEL(k) * p.x_stride_w) / 4u] : uvec2(0u);
#else
    held[k] = HAS_PIXEL(k) ? pm_load_vec4(x, (from + PIXEL(k) * p.x_stride_w) / 4u) : vec4(0.0);
#endif
  }
  vec4 sum = vec4(0.0);
  FOR_HELD(k) sum += held_four(k);
  const vec4 mean = mean_of(gather_sum(sum));
  // Correct the mean by the mean of the residuals, which is its error: the sum is rounded.
  Sums about = Sums(vec4(0.0), vec4(0.0));  // squares, residuals
  FOR_HELD(k) {
    precise vec4 v = held_four(k) - mean;
    if (HAS_PIXEL(k)) about.a += v * v, about.b += v;
  }
  about = gather_sums(about);
  const vec4 squares = mean_of(about.a), rest = mean_of(about.b);
  if (!is_there) return;
  vec4 factor;
  [[unroll]] for (uint i = 0u; i < 4u; ++i)
    factor[i] = pm_divide(1.0, pm_sqrt(pm_about_mean(squares[i], rest[i] * rest[i]) + p.epsilon)) * scale[four][i];
  const vec4 shift = bias[four];
  const uint to = p.y_offset + image * p.y_stride_n + four * 4u;
  FOR_HELD(k) {
    if (!HAS_PIXEL(k)) continue;
    precise vec4 distance = (held_four(k) - mean) - rest;
    const uint at = to + PIXEL(k) * p.y_stride_w;
    pm_store_vec4(y, at / 4u, finished(distance * factor + shift, at));
  }
}
