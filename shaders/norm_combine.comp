// Merges the partial statistics of each (image, group of channels) into the factors that norm_apply uses (Chan, Golub, LeVeque 1983).
//
// x: vec2 [images][chunks][groups] (mean, sum of squared deviations). y: vec4 [images][channels] (mean, scale / sqrt(variance + epsilon),
// bias, residual of the mean).
// TEAM 1: one invocation per channel. Otherwise TEAM invocations share the chunks of a channel.
//
// For all devices. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "include/grid.glsl"
#include "include/math.glsl"
layout(local_size_x = 64) in;
#if TEAM > 1
#include "include/thread_group.glsl"
#endif
layout(binding = 0) readonly buffer X { vec2 x[]; };
layout(binding = 1) readonly buffer Scale { float scale[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform parameter {
  uint images, channels, groups;
  uint pixels, stretch, stretches;  // pixels per group, pixels per chunk, chunks per group
  float epsilon;
} p;
#include "include/welford.glsl"

#if TEAM > 1
shared vec3 meeting[64 + 16];
PM_GATHER(gather_merged, vec3, meeting, merged)
#endif

void main() {
#if TEAM > 1
  const uint id = grid_group() * (64u / TEAM) + TEAM_NUMBER, member = TEAM_MEMBER, members = TEAM;
#else
  const uint id = grid_invocation(), member = 0u, members = 1u;
#endif
  const bool is_there = id < p.images * p.channels;  // surplus groups only take part in the barriers
  const uint image = id / p.channels, channel = id - image * p.channels, group = channel / (p.channels / p.groups);
  const uint first = image * p.stretches * p.groups + group;
  const float origin = is_there ? x[first].x : 0.0;  // means are relative to this one, to keep precision
  vec3 all = vec3(0.0);
  for (uint i = is_there ? member : p.stretches; i < p.stretches; i += members) {
    const vec2 part = x[first + i * p.groups];
    all = merged(all, vec3(float(min(p.stretch, p.pixels - i * p.stretch)), part.x - origin, part.y));
  }
#if TEAM > 1
  all = gather_merged(all);
  if (member != 0u) return;
#endif
  if (!is_there) return;
  const float mean = all.y;
  precise float whole = origin + mean, rest = mean - (whole - origin);
  const float factor = scale[channel] * pm_divide(1.0, pm_sqrt(pm_divide(all.z, float(p.pixels)) + p.epsilon));
  y[id] = vec4(whole, factor, bias[channel], rest);
}
