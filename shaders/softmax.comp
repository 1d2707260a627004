// Softmax or log-softmax of one row a workgroup: maximum, sum of exponentials, result. Rows are strided, so any axis will do.
// LANES: one subgroup of 8 and no shared memory (CPU drivers); else the workgroup meets in shared memory.
#version 450
#if LANES
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "include/math.glsl"
#include "include/tensor.glsl"
#if LANES
layout(local_size_x = 8) in;
#else
layout(local_size_x = 256) in;
shared float meeting[256];
#endif
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) buffer Y { sfp y[]; };
layout(push_constant) uniform parameter {
  uint rows, inner, size;   // row r begins at (r / inner) * outer_stride + (r % inner) * inner_stride
  uint x_outer, x_inner, x_step;
  uint y_outer, y_inner, y_step;
  uint logarithm;
  uint x_offset, y_offset;
} p;

#if LANES
float gather(float v, bool maximum) {
  float result = subgroupShuffle(v, 0u);
  for (uint i = 1u; i < 8u; ++i) {
    const float other = subgroupShuffle(v, i);
    result = maximum ? pm_max(result, other) : result + other;
  }
  return result;
}
#else
float gather(float v, bool maximum) {
  const uint id = gl_LocalInvocationID.x;
  barrier();
  meeting[id] = v;
  barrier();
  for (uint half_size = gl_WorkGroupSize.x / 2u; half_size > 0u; half_size /= 2u) {
    if (id < half_size) meeting[id] = maximum ? pm_max(meeting[id], meeting[id + half_size]) : meeting[id] + meeting[id + half_size];
    barrier();
  }
  return meeting[0];
}
#endif

// Loops nest so that none runs more than 65,535 times, where lavapipe stops silently.
#define FOR_ROW(i)                                                                                                    \
  for (uint begin_ = 0u; begin_ < p.size; begin_ += 16384u * gl_WorkGroupSize.x)                                      \
    for (uint i = begin_ + gl_LocalInvocationID.x; i < min(p.size, begin_ + 16384u * gl_WorkGroupSize.x); i += gl_WorkGroupSize.x)

void main() {
  const uint row = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (row >= p.rows) return;
  const uint from = p.x_offset + row / p.inner * p.x_outer + row % p.inner * p.x_inner;
  const uint to = p.y_offset + row / p.inner * p.y_outer + row % p.inner * p.y_inner;
  float largest = uintBitsToFloat(0xff800000u);
  FOR_ROW(i) largest = pm_max(largest, pm_load(x, from + i * p.x_step));
  largest = gather(largest, true);
  float sum = 0.0;
  FOR_ROW(i) sum += exp(pm_load(x, from + i * p.x_step) - largest);
  sum = gather(sum, false);
  const float log_sum = log(sum);
  FOR_ROW(i) {
    const float v = pm_load(x, from + i * p.x_step) - largest;
    pm_store(y, to + i * p.y_step, p.logarithm != 0u ? v - log_sum : exp(v) / sum);
  }
}
