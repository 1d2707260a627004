// Softmax over the middle axis of [outer, size, inner], second dispatch: y = exp(x - maximum) * normalizer, or LOGARITHM: y = x - maximum -
// normalizer.
//
// columns: the maximum of each column, then the normalizer of each: 1 / sum of exponentials, or the logarithm of the sum. reduce.comp
// computes both. An invocation writes vec4s of neighbouring columns in ROWS rows.
// For all devices. Selected in cpp/operators/normalization/softmax.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { XFP4 x[]; };
layout(binding = 1) readonly buffer Columns { vec4 columns[]; };  // column maxima, then normalizers
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
layout(push_constant) uniform parameter {
  uint outer, size;
  uint inner, normalizers_offset;  // number of columns, and offset of the normalizers, in vec4s
  uint x_offset, columns_offset, y_offset;
} p;
void main() {
  const uint group = grid_group();
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x, blocks = (p.size + ROWS - 1u) / ROWS;
  const uint row_block = id / p.inner, column = id - row_block * p.inner, outer = row_block / blocks, row = (row_block - outer * blocks) * ROWS;
  if (outer >= p.outer) return;
  const uint from = (outer * p.size + row) * p.inner + column, rows = min(p.size - row, ROWS);
  const uint statistics = p.columns_offset / 4u + outer * p.inner + column;
  const vec4 column_max = columns[statistics], normalizer = columns[p.normalizers_offset + statistics];
  vec4 regs[ROWS];
  [[unroll]] for (uint k = 0u; k < ROWS; ++k) regs[k] = X4_AT(p.x_offset / 4u + from + min(k, rows - 1u) * p.inner);
  [[unroll]] for (uint k = 0u; k < ROWS; ++k) {
    if (k >= rows) break;
    precise vec4 v = regs[k] - column_max;
#if LOGARITHM
    precise vec4 logarithm = v - normalizer;
    SET_Y4(p.y_offset / 4u + from + k * p.inner, logarithm);
#else
    SET_Y4(p.y_offset / 4u + from + k * p.inner, exp(v) * normalizer);
#endif
  }
}
