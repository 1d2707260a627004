// LayerNormalization, GroupNormalization and InstanceNormalization of rows kept in registers, so that x is read once. See layer_norm.comp.
//
// x, y: dense rows of whole vec4s. CHANNELS 0: scale and bias per element of a row. 1: a row is the plane of one channel, with one scale
// and bias. 2: a row is the planes of p.channels neighbouring channels, group row % p.groups of its image. RESIDUAL: a second tensor for
// the epilogue.
// GROUP_THREADS invocations share a row, ITEMS_PER_THREAD vec4s each; a workgroup has THREAD_GROUPS rows.
//   load the row (PREFETCH_FACTORS: scale, bias and residual too); reduce sum; reduce squares and residuals; normalise; store
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp if the row fits registers
// (plan_row_registers).
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(push_constant) uniform parameter {
  uint rows, vec4_per_row;
#if CHANNELS
  uint groups, channels;
  float plane_inverse;  // 1 / vec4s per channel
#endif
  float epsilon;
  uint x_offset, y_offset;
#if RESIDUAL
  uint residual_offset;
#endif
#if HAS_MEAN
  uint mean_of_offset;
#endif
#if HAS_DEVIATION
  uint deviation_of_offset;
#endif
} p;
#include "include/row_registers.glsl"
#if CHANNELS
#define FACTOR float
#define FACTOR_AT(k) (ROW_INDEX % p.groups)
#else
#define FACTOR vec4
#define FACTOR_AT(k) ROW_VEC4_INDEX(k)
#endif
layout(binding = 1) readonly buffer Scale { FACTOR scale[]; };
#if HAS_BIAS
layout(binding = 3) readonly buffer Bias { FACTOR bias[]; };
#endif
#if HAS_MEAN
layout(binding = 4) buffer Mean { STATISTIC mean_of[]; };
#endif
#if HAS_DEVIATION
layout(binding = 5) buffer Deviation { STATISTIC deviation_of[]; };
#endif
#if RESIDUAL
layout(binding = 6) readonly buffer R { RFP4 residual[]; };
#endif
#if CHANNELS == 2
shared vec2 channel_factors[THREAD_GROUPS * MAX_CHANNELS];  // (factor, bias) of each channel of a group's row
#endif

// Scale, bias and residual. PREFETCH_FACTORS: loaded together with the row to hide their latency, which costs registers and thus occupancy
// if there are many rows.
#ifndef PREFETCH_FACTORS
#define PREFETCH_FACTORS 0
#endif
FACTOR scales[ITEMS_PER_THREAD], biases[ITEMS_PER_THREAD];
vec4 residuals[ITEMS_PER_THREAD];

void load_scale_bias_residual(uint k) {
  if (!HAS_VEC4(k)) return;
#if CHANNELS != 2
  scales[k] = scale[FACTOR_AT(k)];
#if HAS_BIAS
  biases[k] = bias[FACTOR_AT(k)];
#endif
#endif
#if RESIDUAL
  residuals[k] = R4_AT(p.residual_offset / 4u + ROW_INDEX * p.vec4_per_row + ROW_VEC4_INDEX(k));
#endif
}

#if RESIDUAL
#define APPLY_EPILOGUE(v, k) epilogue(v, residuals[k])
#else
#define APPLY_EPILOGUE(v, k) epilogue(v)
#endif

#if SUBTRACT_MEAN
shared vec2 reduce_pair_buffer[GROUP_THREADS * THREAD_GROUPS + 16u];
PM_DEFINE_GROUP_REDUCE(reduce_sums, vec2, reduce_pair_buffer, pm_sum)
#endif

void main() {
  load_row(0.0);
#if PREFETCH_FACTORS
  FOR_THREAD_ITEMS(k) load_scale_bias_residual(k);
#endif
#if SUBTRACT_MEAN
  float sum = 0.0;
  FOR_THREAD_ITEMS(k) {
    const vec4 v = row_vec4(k);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  const float mean = pm_divide(reduce_sum(sum), float(p.vec4_per_row * 4u));
#else
  const float mean = 0.0;
#endif
  vec2 sums = vec2(0.0);
  FOR_THREAD_ITEMS(k) {
    precise vec4 v = row_vec4(k) - mean;
    if (HAS_VEC4(k)) sums += vec2(dot(v, v), (v.x + v.y) + (v.z + v.w));
  }
#if SUBTRACT_MEAN
  // Correct the mean by the mean of the residuals, which is the rounding error of the mean.
  sums = reduce_sums(sums);
  const float mean_error = pm_divide(sums.y, float(p.vec4_per_row * 4u)), squares = sums.x;
#else
  const float mean_error = 0.0, squares = reduce_sum(sums.x);
#endif
  const float variance = pm_centred_squares(pm_divide(squares, float(p.vec4_per_row * 4u)), mean_error * mean_error);
  const float factor = pm_divide(1.0, pm_sqrt(variance + p.epsilon));
  if (THREAD_IN_GROUP == 0u && ROW_INDEX < p.rows) {
#if HAS_MEAN
    STORE_STATISTIC(mean_of, p.mean_of_offset + ROW_INDEX, mean + mean_error);
#endif
#if HAS_DEVIATION
    STORE_STATISTIC(deviation_of, p.deviation_of_offset + ROW_INDEX, factor);
#endif
  }
#if CHANNELS == 2
  for (uint c = THREAD_IN_GROUP; c < p.channels; c += GROUP_THREADS) {
    const uint channel = (ROW_INDEX % p.groups) * p.channels + c;
    channel_factors[THREAD_GROUP_INDEX * MAX_CHANNELS + c] = vec2(scale[channel] * factor, bias[channel]);
  }
  barrier();
  FOR_THREAD_ITEMS(k) {
    if (!HAS_VEC4(k)) continue;
    load_scale_bias_residual(k);
    const vec2 factor_and_bias = channel_factors[THREAD_GROUP_INDEX * MAX_CHANNELS + uint((float(ROW_VEC4_INDEX(k)) + 0.5) * p.plane_inverse)];
    precise vec4 delta = (row_vec4(k) - mean) - mean_error;
    const vec4 v = delta * factor_and_bias.x + factor_and_bias.y;
    store_vec4(k, APPLY_EPILOGUE(v, k));
  }
#else
  FOR_THREAD_ITEMS(k) {
    if (!HAS_VEC4(k)) continue;
#if !PREFETCH_FACTORS
    load_scale_bias_residual(k);
#endif
    precise vec4 delta = (row_vec4(k) - mean) - mean_error;
    vec4 v = delta * factor * scales[k];
#if HAS_BIAS
    v += biases[k];
#endif
    store_vec4(k, APPLY_EPILOGUE(v, k));
  }
#endif
}
