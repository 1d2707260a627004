// InstanceNormalization of channels-last tensors, second dispatch: y = (x - mean) * factor + bias per (image, channel), then the epilogue.
//
// x, y: [images, pixels, channels], channels fastest. partials: vec2 [images][chunks][channels] (mean, sum of squared deviations), from
// norm_nhwc_statistics.
// Workgroup of 256 = 16 channels x 64 * ITEMS_PER_THREAD pixels of an image.
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
#define GROUP_THREADS 16u
layout(local_size_x = 256) in;
#include "include/thread_group.glsl"
#include "include/welford.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) readonly buffer Parts { vec2 partials[]; };  // [images][chunks][channels]: mean, sum of squared deviations
layout(binding = 2) readonly buffer Scale { float scale[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) writeonly buffer Y { sfpvec4 y[]; };
layout(push_constant) uniform parameter {
  uint images, num_channel_vec4, pixels;  // num_channel_vec4: channels / 4
  uint chunk_size, chunks;
  uint x_stride_n, x_stride_w, y_stride_n, y_stride_w;
  float epsilon;
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;
#if RESIDUAL
layout(binding = 5) readonly buffer R { sfpvec4 residual[]; };
vec4 apply_epilogue(vec4 v, uint at) { return epilogue(v, pm_load_vec4(residual, (at - p.y_offset + p.residual_offset) / 4u)); }
#else
#define apply_epilogue(v, at) epilogue(v)
#endif
shared vec3 reduce_buffer[256 + 16];
PM_DEFINE_GROUP_REDUCE(reduce_welford, vec3, reduce_buffer, welford_combine)
shared vec4 factors[16];  // for each channel: mean, factor, bias, residual of the mean

#define FOR_THREAD_ITEMS(k) [[unroll]] for (uint k = 0u; k < ITEMS_PER_THREAD; ++k)

void main() {
  const uint blocks = (p.num_channel_vec4 + 3u) / 4u, ranges = (p.pixels + 64u * ITEMS_PER_THREAD - 1u) / (64u * ITEMS_PER_THREAD);
  const uint block = grid_group() % blocks, rest = grid_group() / blocks;
  const uint image = rest / ranges, first = (rest - image * ranges) * 64u * ITEMS_PER_THREAD + gl_LocalInvocationID.x / 4u;
  const bool has_image = image < p.images;
  const uint channel_vec4 = block * 4u + gl_LocalInvocationID.x % 4u;
  const bool is_active = has_image && channel_vec4 < p.num_channel_vec4;
  const uint from = p.x_offset + image * p.x_stride_n + channel_vec4 * 4u, to = p.y_offset + image * p.y_stride_n + channel_vec4 * 4u;
  vec4 regs[ITEMS_PER_THREAD];
  FOR_THREAD_ITEMS(k) regs[k] = is_active && first + k * 64u < p.pixels ? pm_load_vec4(x, (from + (first + k * 64u) * p.x_stride_w) / 4u) : vec4(0.0);

  const uint channel = block * 16u + THREAD_GROUP_INDEX, channels = p.num_channel_vec4 * 4u;
  const bool has_channel = has_image && channel < channels;
  const uint begin = image * p.chunks * channels + channel;
  const float origin = has_channel ? partials[begin].x : 0.0;  // means are relative to this one, to keep precision
  vec3 all = vec3(0.0);
  for (uint i = has_channel ? THREAD_IN_GROUP : p.chunks; i < p.chunks; i += GROUP_THREADS) {
    const vec2 partial = partials[begin + i * channels];
    all = welford_combine(all, vec3(float(min(p.chunk_size, p.pixels - i * p.chunk_size)), partial.x - origin, partial.y));
  }
  all = reduce_welford(all);
  if (has_channel && THREAD_IN_GROUP == 0u) {
    precise float total_mean = origin + all.y, mean_error = all.y - (total_mean - origin);
    const float factor = scale[channel] * pm_divide(1.0, pm_sqrt(pm_divide(all.z, float(p.pixels)) + p.epsilon));
    factors[THREAD_GROUP_INDEX] = vec4(total_mean, factor, bias[channel], mean_error);
  }
  barrier();
  if (!is_active) return;
  vec4 means, scales, shifts, mean_errors;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const vec4 channel_factors = factors[gl_LocalInvocationID.x % 4u * 4u + i];
    means[i] = channel_factors.x, scales[i] = channel_factors.y, shifts[i] = channel_factors.z, mean_errors[i] = channel_factors.w;
  }
  FOR_THREAD_ITEMS(k) {
    const uint pixel = first + k * 64u;
    if (pixel >= p.pixels) break;
    precise vec4 distance = (regs[k] - means) - mean_errors;
    const uint at = to + pixel * p.y_stride_w;
    pm_store_vec4(y, at / 4u, apply_epilogue(distance * scales + shifts, at));
  }
}
