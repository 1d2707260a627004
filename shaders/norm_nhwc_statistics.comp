// InstanceNormalization of channels-last tensors, first dispatch: mean and sum of squared deviations of chunks of pixels, by (image,
// channel).
//
// x: [images, pixels, channels], channels fastest. y: vec2 [images][chunks][channels]. TEAM invocations load four channels of a chunk of
// TEAM * HELD pixels into registers, so that x is read once.
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp for large images.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = TEAM * TEAMS) in;
#include "include/vec4_reduce.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) writeonly buffer Y { vec2 y[]; };  // [images][chunks][channels]
layout(push_constant) uniform parameter {
  uint images, fours, pixels;  // fours: channels / 4
  uint stretches;              // number of chunks of TEAM * HELD pixels per image
  uint x_stride_n, x_stride_w;
  uint x_offset;
} p;

#define FOR_HELD(k) [[unroll]] for (uint k = 0u; k < HELD; ++k)
#define PIXEL(k) (first + TEAM_MEMBER + (k) * TEAM)
#define HAS_PIXEL(k) (is_there && PIXEL(k) < p.pixels)

vec4 divided(vec4 sum, float count) {
  return vec4(pm_divide(sum.x, count), pm_divide(sum.y, count), pm_divide(sum.z, count), pm_divide(sum.w, count));
}

void main() {
  const uint number = grid_group() * TEAMS + TEAM_NUMBER, part = number / p.fours, four = number - part * p.fours;
  const uint image = part / p.stretches, first = (part - image * p.stretches) * TEAM * HELD;
  const bool is_there = image < p.images;  // surplus groups only take part in the barriers
  const float count = float(min(TEAM * HELD, p.pixels - min(first, p.pixels)));
  const uint from = p.x_offset + image * p.x_stride_n + four * 4u;
  vec4 held[HELD];
  FOR_HELD(k) held[k] = HAS_PIXEL(k) ? pm_load_vec4(x, (from + PIXEL(k) * p.x_stride_w) / 4u) : vec4(0.0);
  vec4 sum = vec4(0.0);
  FOR_HELD(k) sum += held[k];
  const vec4 mean = divided(gather_sum(sum), count);
  // Correct the mean by the mean of the residuals, which is its error: the sum is rounded.
  Sums about = Sums(vec4(0.0), vec4(0.0));  // squares, residuals
  FOR_HELD(k) {
    precise vec4 v = held[k] - mean;
    if (HAS_PIXEL(k)) about.a += v * v, about.b += v;
  }
  about = gather_sums(about);
  if (!is_there || TEAM_MEMBER != 0u) return;
  const vec4 rest = divided(about.b, count);
  [[unroll]] for (uint i = 0u; i < 4u; ++i)
    y[(part * p.fours + four) * 4u + i] = vec2(mean[i] + rest[i], pm_about_mean(about.a[i], about.b[i] * rest[i]));
}
