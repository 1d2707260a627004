// Softmax, or LogSoftmax (LOGARITHM), of rows kept in registers, so that x is read once.
//
// x, y: dense rows of whole vec4s. TEAM invocations share a row, HELD vec4s each (include/row_registers.glsl).
//   load; reduce the maximum; exponentials; reduce the sum; store
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/softmax.cpp if the row fits registers (held_rows).
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(push_constant) uniform parameter { uint rows, quads, x_offset, y_offset; } p;
#include "include/row_registers.glsl"

// max() may ignore NaN, but the sum propagates it to all results.
float largest_of(vec4 v) { return max(max(v.x, v.y), max(v.z, v.w)); }
float sum_of(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

void main() {
  hold_row(uintBitsToFloat(0xff800000u));
  float largest = largest_of(held[0]), sum = 0.0;
  FOR_HELD(k) largest = max(largest, largest_of(held[k]));
  largest = gather_largest(largest);
  FOR_HELD(k) {
    precise vec4 v = held[k] - largest;
#if LOGARITHM
    held[k] = v;
    if (HAS_FOUR(k)) sum += sum_of(exp(v));
#else
    held[k] = exp(v);
    if (HAS_FOUR(k)) sum += sum_of(held[k]);
#endif
  }
  sum = gather_sum(sum);
#if LOGARITHM
  const float term = log(sum);
#else
  const float term = 1.0 / sum;
#endif
  FOR_HELD(k) {
#if LOGARITHM
    precise vec4 v = held[k] - term;
#else
    const vec4 v = held[k] * term;
#endif
    if (HAS_FOUR(k)) store_four(k, v);
  }
}
