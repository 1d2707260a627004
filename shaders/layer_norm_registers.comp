// LayerNormalization, GroupNormalization and InstanceNormalization of rows kept in registers, so that x is read once. See layer_norm.comp.
//
// x, y: dense rows of whole vec4s. CHANNELS 0: scale and bias per element of a row. 1: a row is the plane of one channel, with one scale
// and bias. 2: a row is the planes of p.channels neighbouring channels, group row % p.groups of its image. RESIDUAL: a second tensor for
// the epilogue.
// TEAM invocations share a row, HELD vec4s each; a workgroup has TEAMS rows.
//   load the row (EARLY: scale, bias and residual too); reduce sum; reduce squares and residuals; normalise; store
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/normalization.cpp if the row fits registers
// (held_rows).
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(push_constant) uniform parameter {
  uint rows, quads;
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
#define FACTOR_AT(k) (ROW % p.groups)
#else
#define FACTOR vec4
#define FACTOR_AT(k) FOUR(k)
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
shared vec2 lines[TEAMS * MOST_CHANNELS];  // (factor, bias) of each channel of a group's row
#endif

// Scale, bias and residual. EARLY: loaded together with the row to hide their latency, which costs registers and thus occupancy if there
// are many rows.
#ifndef EARLY
#define EARLY 0
#endif
FACTOR scales[HELD], biases[HELD];
vec4 residuals[HELD];

void hold_terms(uint k) {
  if (!HAS_FOUR(k)) return;
#if CHANNELS != 2
  scales[k] = scale[FACTOR_AT(k)];
#if HAS_BIAS
  biases[k] = bias[FACTOR_AT(k)];
#endif
#endif
#if RESIDUAL
  residuals[k] = R4_AT(p.residual_offset / 4u + ROW * p.quads + FOUR(k));
#endif
}

#if RESIDUAL
#define FINISHED(v, k) epilogue(v, residuals[k])
#else
#define FINISHED(v, k) epilogue(v)
#endif

#if CENTRED
shared vec2 meetings[TEAM * TEAMS + 16u];
PM_GATHER(gather_sums, vec2, meetings, pm_sum)
#endif

void main() {
  hold_row(0.0);
#if EARLY
  FOR_HELD(k) hold_terms(k);
#endif
#if CENTRED
  float sum = 0.0;
  FOR_HELD(k) {
    const vec4 v = held_four(k);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  const float mean = pm_divide(gather_sum(sum), float(p.quads * 4u));
#else
  const float mean = 0.0;
#endif
  vec2 sums = vec2(0.0);
  FOR_HELD(k) {
    precise vec4 v = held_four(k) - mean;
    if (HAS_FOUR(k)) sums += vec2(dot(v, v), (v.x + v.y) + (v.z + v.w));
  }
#if CENTRED
  // Correct the mean by the mean of the residuals, which is its error: the sum is rounded.
  sums = gather_sums(sums);
  const float rest = pm_divide(sums.y, float(p.quads * 4u)), squares = sums.x;
#else
  const float rest = 0.0, squares = gather_sum(sums.x);
#endif
  const float variance = pm_about_mean(pm_divide(squares, float(p.quads * 4u)), rest * rest);
  const float factor = pm_divide(1.0, pm_sqrt(variance + p.epsilon));
  if (TEAM_MEMBER == 0u && ROW < p.rows) {
#if HAS_MEAN
    STORE_STATISTIC(mean_of, p.mean_of_offset + ROW, mean + rest);
#endif
#if HAS_DEVIATION
    STORE_STATISTIC(deviation_of, p.deviation_of_offset + ROW, factor);
#endif
  }
#if CHANNELS == 2
  for (uint c = TEAM_MEMBER; c < p.channels; c += TEAM) {
    const uint channel = (ROW % p.groups) * p.channels + c;
    lines[TEAM_NUMBER * MOST_CHANNELS + c] = vec2(scale[channel] * factor, bias[channel]);
  }
  barrier();
  FOR_HELD(k) {
    if (!HAS_FOUR(k)) continue;
    hold_terms(k);
    const vec2 line = lines[TEAM_NUMBER * MOST_CHANNELS + uint((float(FOUR(k)) + 0.5) * p.plane_inverse)];
    precise vec4 delta = (held_four(k) - mean) - rest;
    const vec4 v = delta * line.x + line.y;
    store_four(k, FINISHED(v, k));
  }
#else
  FOR_HELD(k) {
    if (!HAS_FOUR(k)) continue;
#if !EARLY
    hold_terms(k);
#endif
    precise vec4 delta = (held_four(k) - mean) - rest;
    vec4 v = delta * factor * scales[k];
#if HAS_BIAS
    v += biases[k];
#endif
    store_four(k, FINISHED(v, k));
  }
#endif
}
