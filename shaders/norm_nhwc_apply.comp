// InstanceNormalization of channels-last tensors, second dispatch: y = (x - mean) * factor + bias by (image, channel), then the epilogue.
//
// x, y: [images, pixels, channels], channels fastest. parts: vec2 [images][chunks][channels] (mean, sum of squared deviations), from
// norm_nhwc_statistics.
// Workgroup of 256 = 16 channels x 64 * HELD pixels of an image.
//   prefetch x into registers; merge the partial statistics of 16 channels, 16 invocations each; barrier; normalise; store
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#define TEAM 16u
layout(local_size_x = 256) in;
#include "include/thread_group.glsl"
#include "include/welford.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) readonly buffer Parts { vec2 parts[]; };  // [images][chunks][channels]: mean, sum of squared deviations
layout(binding = 2) readonly buffer Scale { float scale[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) writeonly buffer Y { sfpvec4 y[]; };
layout(push_constant) uniform parameter {
  uint images, fours, pixels;  // fours: channels / 4
  uint stretch, stretches;
  uint x_stride_n, x_stride_w, y_stride_n, y_stride_w;
  float epsilon;
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;
#if RESIDUAL
layout(binding = 5) readonly buffer R { sfpvec4 residual[]; };
vec4 finished(vec4 v, uint at) { return epilogue(v, pm_load_vec4(residual, (at - p.y_offset + p.residual_offset) / 4u)); }
#else
#define finished(v, at) epilogue(v)
#endif
shared vec3 meeting[256 + 16];
PM_GATHER(gather_merged, vec3, meeting, merged)
shared vec4 factors[16];  // for each channel: mean, factor, bias, residual of the mean

#define FOR_HELD(k) [[unroll]] for (uint k = 0u; k < HELD; ++k)

void main() {
  const uint blocks = (p.fours + 3u) / 4u, ranges = (p.pixels + 64u * HELD - 1u) / (64u * HELD);
  const uint block = grid_group() % blocks, rest = grid_group() / blocks;
  const uint image = rest / ranges, first = (rest - image * ranges) * 64u * HELD + gl_LocalInvocationID.x / 4u;
  const bool has_image = image < p.images;
  const uint four = block * 4u + gl_LocalInvocationID.x % 4u;
  const bool is_there = has_image && four < p.fours;
  const uint from = p.x_offset + image * p.x_stride_n + four * 4u, to = p.y_offset + image * p.y_stride_n + four * 4u;
  vec4 held[HELD];
  FOR_HELD(k) held[k] = is_there && first + k * 64u < p.pixels ? pm_load_vec4(x, (from + (first + k * 64u) * p.x_stride_w) / 4u) : vec4(0.0);

  const uint channel = block * 16u + TEAM_NUMBER, channels = p.fours * 4u;
  const bool has_channel = has_image && channel < channels;
  const uint begin = image * p.stretches * channels + channel;
  const float origin = has_channel ? parts[begin].x : 0.0;  // means are relative to this one, to keep precision
  vec3 all = vec3(0.0);
  for (uint i = has_channel ? TEAM_MEMBER : p.stretches; i < p.stretches; i += TEAM) {
    const vec2 part = parts[begin + i * channels];
    all = merged(all, vec3(float(min(p.stretch, p.pixels - i * p.stretch)), part.x - origin, part.y));
  }
  all = gather_merged(all);
  if (has_channel && TEAM_MEMBER == 0u) {
    precise float whole = origin + all.y, left = all.y - (whole - origin);
    const float factor = scale[channel] * pm_divide(1.0, pm_sqrt(pm_divide(all.z, float(p.pixels)) + p.epsilon));
    factors[TEAM_NUMBER] = vec4(whole, factor, bias[channel], left);
  }
  barrier();
  if (!is_there) return;
  vec4 means, scales, shifts, lefts;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const vec4 one = factors[gl_LocalInvocationID.x % 4u * 4u + i];
    means[i] = one.x, scales[i] = one.y, shifts[i] = one.z, lefts[i] = one.w;
  }
  FOR_HELD(k) {
    const uint pixel = first + k * 64u;
    if (pixel >= p.pixels) break;
    precise vec4 distance = (held[k] - means) - lefts;
    const uint at = to + pixel * p.y_stride_w;
    pm_store_vec4(y, at / 4u, finished(distance * scales + shifts, at));
  }
}
