// Softmax (MODE 0), LogSoftmax (1) or Hardmax (2: one at the first maximum) of rows: maximum, sum of exponentials, result.
//
// x, y: strided rows, so any axis is possible. include/row_reduce.glsl defines which invocations share a row: a workgroup, 16 invocations
// (SHORT_ROWS) or a subgroup of 8 (CPU_VARIANT).
// For all devices. Selected in cpp/operators/normalization/softmax.cpp for rows that do not fit registers.
#version 450
#if CPU_VARIANT
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
  const uint row = ROW_INDEX, size = row < p.rows ? p.size : 0u;
  const uint from = p.x_offset + row / p.inner * p.x_outer + row % p.inner * p.x_inner;
  const uint to = p.y_offset + row / p.inner * p.y_outer + row % p.inner * p.y_inner;
  float row_max = uintBitsToFloat(0xff800000u);
  FOR_ROW_ELEMENTS(i, size) row_max = pm_max(row_max, X_AT(from + i * p.x_step));
  row_max = reduce_max(row_max);
#if MODE == 2
  // Finds the first maximum or NaN as the one with the largest distance from the end of the row.
  float first_distance = 0.0;
  FOR_ROW_ELEMENTS(i, size) {
    const float v = X_AT(from + i * p.x_step);
    if (v == row_max || (pm_isnan(v) && pm_isnan(row_max))) first_distance = pm_max(first_distance, float(p.size - i));
  }
  const uint first = p.size - uint(reduce_max(first_distance));
  FOR_ROW_ELEMENTS(i, size) SET_Y(to + i * p.y_step, i == first ? 1.0 : 0.0);
#else
  float sum = 0.0;
  FOR_ROW_ELEMENTS(i, size) {
    precise float v = X_AT(from + i * p.x_step) - row_max;
    sum += exp(v);
  }
  sum = reduce_sum(sum);
  const float log_sum = log(sum);
  FOR_ROW_ELEMENTS(i, size) {
    precise float v = X_AT(from + i * p.x_step) - row_max, logarithm = v - log_sum;
    SET_Y(to + i * p.y_step, MODE == 1 ? logarithm : exp(v) / sum);
  }
#endif
}
