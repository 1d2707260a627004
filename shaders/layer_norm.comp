// LayerNormalization of dense rows: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, then the epilogue.
//
// x, y: [rows, size]. scale, bias: float [size]. SUBTRACT_MEAN 0: RMSNormalization, with a mean of 0. HAS_MEAN, HAS_DEVIATION: also store
// the mean and 1 / standard deviation.
// include/row_reduce.glsl defines which invocations share a row: a workgroup, 16 invocations (SHORT_ROWS) or a subgroup of 8 (CPU_VARIANT).
//   mean = sum(x) / size; variance around it, corrected by the mean of the residuals; store
//
// For all devices. Selected in cpp/operators/normalization/normalization.cpp for rows that do not fit registers.
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
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
#include "include/row_reduce.glsl"
layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) readonly buffer Scale { float scale[]; };
layout(binding = 2) buffer Y { YFP y[]; };
#if HAS_BIAS
layout(binding = 3) readonly buffer Bias { float bias[]; };
#endif
#if HAS_MEAN
layout(binding = 4) buffer Mean { STATISTIC mean_of[]; };
#endif
#if HAS_DEVIATION
layout(binding = 5) buffer Deviation { STATISTIC deviation_of[]; };
#endif
layout(push_constant) uniform parameter { uint rows, size; float epsilon; uint x_offset, y_offset;
#if HAS_MEAN
  uint mean_of_offset;
#endif
#if HAS_DEVIATION
  uint deviation_of_offset;
#endif
} p;
void main() {
  const uint row = ROW_INDEX, size = row < p.rows ? p.size : 0u;
  const uint from = p.x_offset + row * p.size, to = p.y_offset + row * p.size;
  float sum = 0.0;
#if SUBTRACT_MEAN
  FOR_ROW_ELEMENTS(i, size) sum += X_AT(from + i);
  const float mean = pm_divide(reduce_sum(sum), float(p.size));
  sum = 0.0;
#else
  const float mean = 0.0;
#endif
  float residual_sum = 0.0;
  FOR_ROW_ELEMENTS(i, size) {
    precise float delta = X_AT(from + i) - mean;
    sum = fma(delta, delta, sum);
    residual_sum += delta;
  }
#if SUBTRACT_MEAN
  // Correct the mean by the mean of the residuals: it is the rounding error of the mean, which matters in long rows.
  const float mean_error = pm_divide(reduce_sum(residual_sum), float(p.size));
#else
  const float mean_error = 0.0;
#endif
  const float variance = pm_centred_squares(pm_divide(reduce_sum(sum), float(p.size)), mean_error * mean_error);
  const float factor = pm_divide(1.0, pm_sqrt(variance + p.epsilon));
  if (THREAD_IN_GROUP == 0u && row < p.rows) {
#if HAS_MEAN
    STORE_STATISTIC(mean_of, p.mean_of_offset + row, mean + mean_error);
#endif
#if HAS_DEVIATION
    STORE_STATISTIC(deviation_of, p.deviation_of_offset + row, factor);
#endif
  }
  FOR_ROW_ELEMENTS(i, size) {
    precise float delta = (X_AT(from + i) - mean) - mean_error;
    float v = delta * factor * scale[i];
#if HAS_BIAS
    v += bias[i];
#endif
    SET_Y(to + i, epilogue(v));
  }
}
