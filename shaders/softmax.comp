// Softmax (MODE 0), LogSoftmax (1) or Hardmax (2: one at the first maximum) of rows: maximum, sum of exponentials, result.
//
// x, y: strided rows, so any axis is possible. include/row_reduce.glsl defines which invocations share a row: a workgroup, 16 invocations (SHORT)
// or a subgroup of 8 (LANES, the CPU variant).
// For all devices. Selected in cpp/operators/normalization/softmax.cpp for rows that do not fit registers.
#version 450
#if LANES
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 8) in;
#else
layout(local_size_x = WORKGROUP) in;
#endif
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
#include "include/row_reduce.glsl"
layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) buffer Y { YFP y[]; };
layout(push_constant) uniform parameter {
  uint rows, inner, size;   // row r starts at (r / inner) * outer stride + (r % inner) * inner stride
  uint x_outer, x_inner, x_step;
  uint y_outer, y_inner, y_step;
  uint x_offset, y_offset;
} p;

void main() {
  const uint row = ROW, size = row < p.rows ? p.size : 0u;
  const uint from = p.x_offset + row / p.inner * p.x_outer + row % p.inner * p.x_inner;
  const uint to = p.y_offset + row / p.inner * p.y_outer + row % p.inner * p.y_inner;
  float largest = uintBitsToFloat(0xff800000u);
  FOR_ROW(i, size) largest = pm_max(largest, X_AT(from + i * p.x_step));
  largest = gather_largest(largest);
#if MODE == 2
  // Index of the first maximum or NaN, by the largest distance from the end.
  float place = 0.0;
  FOR_ROW(i, size) {
    const float v = X_AT(from + i * p.x_step);
    if (v == largest || (pm_isnan(v) && pm_isnan(largest))) place = pm_max(place, float(p.size - i));
  }
  const uint first = p.size - uint(gather_largest(place));
  FOR_ROW(i, size) SET_Y(to + i * p.y_step, i == first ? 1.0 : 0.0);
#else
  float sum = 0.0;
  FOR_ROW(i, size) {
    precise float v = X_AT(from + i * p.x_step) - largest;
    sum += exp(v);
  }
  sum = gather_sum(sum);
  const float log_sum = log(sum);
  FOR_ROW(i, size) {
    precise float v = X_AT(from + i * p.x_step) - largest, logarithm = v - log_sum;
    SET_Y(to + i * p.y_step, MODE == 1 ? logarithm : exp(v) / sum);
  }
#endif
}
