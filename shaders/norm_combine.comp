// Merges the partial statistics of each (image, group of channels) into the factors that norm_apply uses (Chan, Golub, LeVeque 1983).
//
// x: vec2 [images][chunks][groups] (mean, sum of squared deviations). y: vec4 [images][channels] (mean, scale / sqrt(variance + epsilon),
// bias, residual of the mean).
// GROUP_THREADS 1: one invocation per channel. Otherwise GROUP_THREADS invocations share the chunks of a channel.
//
// For all devices. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "include/grid.glsl"
#include "include/math.glsl"
layout(local_size_x = 64) in;
#if GROUP_THREADS > 1
#include "include/thread_group.glsl"
#endif
layout(binding = 0) readonly buffer X { vec2 x[]; };
layout(binding = 1) readonly buffer Scale { float scale[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform parameter {
  uint images, channels, groups;
  uint pixels, chunk_size, chunks;  // pixels per group, pixels per chunk, chunks per group
  float epsilon;
} p;
#include "include/welford.glsl"

#if GROUP_THREADS > 1
shared vec3 reduce_buffer[64 + 16];
PM_DEFINE_GROUP_REDUCE(reduce_welford, vec3, reduce_buffer, welford_combine)
#endif

void main() {
#if GROUP_THREADS > 1
  const uint id = grid_group() * (64u / GROUP_THREADS) + THREAD_GROUP_INDEX, thread_in_group = THREAD_IN_GROUP, group_threads = GROUP_THREADS;
#else
  const uint id = grid_invocation(), thread_in_group = 0u, group_threads = 1u;
#endif
  const bool is_active = id < p.images * p.channels;  // surplus groups only take part in the barriers
  const uint image = id / p.channels, channel = id - image * p.channels, group = channel / (p.channels / p.groups);
  const uint first = image * p.chunks * p.groups + group;
  const float origin = is_active ? x[first].x : 0.0;  // means are relative to this one, to keep precision
  vec3 all = vec3(0.0);
  for (uint i = is_active ? thread_in_group : p.chunks; i < p.chunks; i += group_threads) {
    const vec2 partial = x[first + i * p.groups];
    all = welford_combine(all, vec3(float(min(p.chunk_size, p.pixels - i * p.chunk_size)), partial.x - origin, partial.y));
  }
#if GROUP_THREADS > 1
  all = reduce_welford(all);
  if (thread_in_group != 0u) return;
#endif
  if (!is_active) return;
  const float mean = all.y;
  precise float total_mean = origin + mean, rest = mean - (total_mean - origin);
  const float factor = scale[channel] * pm_divide(1.0, pm_sqrt(pm_divide(all.z, float(p.pixels)) + p.epsilon));
  y[id] = vec4(total_mean, factor, bias[channel], rest);
}
