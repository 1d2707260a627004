// InstanceNormalization of channels-last tensors in one dispatch, with all pixels kept in registers: y = (x - mean) * factor + bias.
//
// x, y: [images, pixels, channels], channels fastest. GROUP_THREADS invocations process four channels of an image, ITEMS_PER_THREAD pixels
// each, and reduce means and squares of the four channels together (include/vec4_reduce.glsl). HOLDS_FP16: the registers hold fp16.
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp (plan_channel_registers) if the
// pixels fit registers.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = GROUP_THREADS * THREAD_GROUPS) in;
#include "include/vec4_reduce.glsl"
#if HOLDS_FP16
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
#endif
layout(binding = 1) readonly buffer Scale { vec4 scale[]; };
layout(binding = 2) writeonly buffer Y { sfpvec4 y[]; };
layout(binding = 3) readonly buffer Bias { vec4 bias[]; };
layout(push_constant) uniform parameter {
  uint images, num_channel_vec4, pixels;  // num_channel_vec4: channels / 4
  uint x_stride_n, x_stride_w, y_stride_n, y_stride_w;
  float epsilon;
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
} p;
#if RESIDUAL
layout(binding = 4) readonly buffer R { sfpvec4 residual[]; };
vec4 apply_epilogue(vec4 v, uint at) { return epilogue(v, pm_load_vec4(residual, (at - p.y_offset + p.residual_offset) / 4u)); }
#else
#define apply_epilogue(v, at) epilogue(v)
#endif

#if HOLDS_FP16
uvec2 regs[ITEMS_PER_THREAD];
vec4 row_vec4(uint k) { return vec4(pm_unpack_halves(regs[k].x), pm_unpack_halves(regs[k].y)); }
#else
vec4 regs[ITEMS_PER_THREAD];
vec4 row_vec4(uint k) { return regs[k]; }
#endif

#define FOR_THREAD_ITEMS(k) [[unroll]] for (uint k = 0u; k < ITEMS_PER_THREAD; ++k)
#define PIXEL(k) (THREAD_IN_GROUP + (k) * GROUP_THREADS)
#define HAS_PIXEL(k) (is_active && PIXEL(k) < p.pixels)

vec4 mean_of(vec4 sum) {
  const float count = float(p.pixels);
  return vec4(pm_divide(sum.x, count), pm_divide(sum.y, count), pm_divide(sum.z, count), pm_divide(sum.w, count));
}

void main() {
  const uint number = grid_group() * THREAD_GROUPS + THREAD_GROUP_INDEX, image = number / p.num_channel_vec4, channel_vec4 = number - image * p.num_channel_vec4;
  const bool is_active = image < p.images;  // surplus groups only take part in the barriers
  const uint from = p.x_offset + image * p.x_stride_n + channel_vec4 * 4u;
  FOR_THREAD_ITEMS(k) {
#if HOLDS_FP16
    regs[k] = HAS_PIXEL(k) ? x[(from + PIXEL(k) * p.x_stride_w) / 4u] : uvec2(0u);
#else
    regs[k] = HAS_PIXEL(k) ? pm_load_vec4(x, (from + PIXEL(k) * p.x_stride_w) / 4u) : vec4(0.0);
#endif
  }
  vec4 sum = vec4(0.0);
  FOR_THREAD_ITEMS(k) sum += row_vec4(k);
  const vec4 mean = mean_of(reduce_sum(sum));
  // Correct the mean by the mean of the residuals, which is the rounding error of the mean.
  Vec4Pair deviations = Vec4Pair(vec4(0.0), vec4(0.0));  // squares, residuals
  FOR_THREAD_ITEMS(k) {
    precise vec4 v = row_vec4(k) - mean;
    if (HAS_PIXEL(k)) deviations.a += v * v, deviations.b += v;
  }
  deviations = reduce_vec4_pair(deviations);
  const vec4 squares = mean_of(deviations.a), mean_error = mean_of(deviations.b);
  if (!is_active) return;
  vec4 factor;
  [[unroll]] for (uint i = 0u; i < 4u; ++i)
    factor[i] = pm_divide(1.0, pm_sqrt(pm_centred_squares(squares[i], mean_error[i] * mean_error[i]) + p.epsilon)) * scale[channel_vec4][i];
  const vec4 shift = bias[channel_vec4];
  const uint to = p.y_offset + image * p.y_stride_n + channel_vec4 * 4u;
  FOR_THREAD_ITEMS(k) {
    if (!HAS_PIXEL(k)) continue;
    precise vec4 distance = (row_vec4(k) - mean) - mean_error;
    const uint at = to + PIXEL(k) * p.y_stride_w;
    pm_store_vec4(y, at / 4u, apply_epilogue(distance * factor + shift, at));
  }
}
