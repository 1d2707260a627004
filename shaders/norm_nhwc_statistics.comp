// InstanceNormalization of channels-last tensors, first dispatch: mean and sum of squared deviations of chunks of pixels, per (image,
// channel).
//
// x: [images, pixels, channels], channels fastest. y: vec2 [images][chunks][channels]. GROUP_THREADS invocations load four channels of a
// chunk of GROUP_THREADS * ITEMS_PER_THREAD pixels into registers, so that x is read once.
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp for large images.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = GROUP_THREADS * THREAD_GROUPS) in;
#include "include/vec4_reduce.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) writeonly buffer Y { vec2 y[]; };  // [images][chunks][channels]
layout(push_constant) uniform parameter {
  uint images, num_channel_vec4, pixels;  // num_channel_vec4: channels / 4
  uint chunks;                            // number of chunks of GROUP_THREADS * ITEMS_PER_THREAD pixels per image
  uint x_stride_n, x_stride_w;
  uint x_offset;
} p;

#define FOR_THREAD_ITEMS(k) [[unroll]] for (uint k = 0u; k < ITEMS_PER_THREAD; ++k)
#define PIXEL(k) (first + THREAD_IN_GROUP + (k) * GROUP_THREADS)
#define HAS_PIXEL(k) (is_active && PIXEL(k) < p.pixels)

vec4 divide_vec4(vec4 sum, float count) {
  return vec4(pm_divide(sum.x, count), pm_divide(sum.y, count), pm_divide(sum.z, count), pm_divide(sum.w, count));
}

void main() {
  const uint number = grid_group() * THREAD_GROUPS + THREAD_GROUP_INDEX, chunk = number / p.num_channel_vec4, channel_vec4 = number - chunk * p.num_channel_vec4;
  const uint image = chunk / p.chunks, first = (chunk - image * p.chunks) * GROUP_THREADS * ITEMS_PER_THREAD;
  const bool is_active = image < p.images;  // surplus groups only take part in the barriers
  const float count = float(min(GROUP_THREADS * ITEMS_PER_THREAD, p.pixels - min(first, p.pixels)));
  const uint from = p.x_offset + image * p.x_stride_n + channel_vec4 * 4u;
  vec4 regs[ITEMS_PER_THREAD];
  FOR_THREAD_ITEMS(k) regs[k] = HAS_PIXEL(k) ? pm_load_vec4(x, (from + PIXEL(k) * p.x_stride_w) / 4u) : vec4(0.0);
  vec4 sum = vec4(0.0);
  FOR_THREAD_ITEMS(k) sum += regs[k];
  const vec4 mean = divide_vec4(reduce_sum(sum), count);
  // Correct the mean by the mean of the residuals, which is the rounding error of the mean.
  Vec4Pair deviations = Vec4Pair(vec4(0.0), vec4(0.0));  // squares, residuals
  FOR_THREAD_ITEMS(k) {
    precise vec4 v = regs[k] - mean;
    if (HAS_PIXEL(k)) deviations.a += v * v, deviations.b += v;
  }
  deviations = reduce_vec4_pair(deviations);
  if (!is_active || THREAD_IN_GROUP != 0u) return;
  const vec4 rest = divide_vec4(deviations.b, count);
  [[unroll]] for (uint i = 0u; i < 4u; ++i)
    y[(chunk * p.num_channel_vec4 + channel_vec4) * 4u + i] = vec2(mean[i] + rest[i], pm_centred_squares(deviations.a[i], deviations.b[i] * rest[i]));
}
