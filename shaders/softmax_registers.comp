// Softmax, or LogSoftmax (LOGARITHM), of rows kept in registers, so that x is read once.
//
// x, y: dense rows of whole vec4s. GROUP_THREADS invocations share a row, ITEMS_PER_THREAD vec4s each (include/row_registers.glsl).
//   load; reduce the maximum; exponentials; reduce the sum; store
//
// For GPUs, with subgroup shuffles if available. Selected in cpp/operators/normalization/softmax.cpp if the row fits registers
// (plan_row_registers).
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(push_constant) uniform parameter { uint rows, vec4_per_row, x_offset, y_offset; } p;
#include "include/row_registers.glsl"

// max() may ignore NaN, but the sum propagates it to all results.
float max_component(vec4 v) { return max(max(v.x, v.y), max(v.z, v.w)); }
float sum_components(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

void main() {
  load_row(uintBitsToFloat(0xff800000u));
  float row_max = max_component(regs[0]), sum = 0.0;
  FOR_THREAD_ITEMS(k) row_max = max(row_max, max_component(regs[k]));
  row_max = reduce_max(row_max);
  FOR_THREAD_ITEMS(k) {
    precise vec4 v = regs[k] - row_max;
#if LOGARITHM
    regs[k] = v;
    if (HAS_VEC4(k)) sum += sum_components(exp(v));
#else
    regs[k] = exp(v);
    if (HAS_VEC4(k)) sum += sum_components(regs[k]);
#endif
  }
  sum = reduce_sum(sum);
#if LOGARITHM
  const float normalizer = log(sum);
#else
  const float normalizer = 1.0 / sum;
#endif
  FOR_THREAD_ITEMS(k) {
#if LOGARITHM
    precise vec4 v = regs[k] - normalizer;
#else
    const vec4 v = regs[k] * normalizer;
#endif
    if (HAS_VEC4(k)) store_vec4(k, v);
  }
}
