// CumSum and CumProd along one axis: s = STEP(s, v, i), stored before (exclusive) or after each element.
//
// Long rows are split into parts. TOTALS stores only the total of each part; an exclusive scan of the totals then gives the CARRY of each
// part. One invocation walks one part of one row. The lowering defines X_TYPE, LOAD(i), Y_TYPE, STORE(i, v), ACCUMULATOR, START and STEP(s,
// v, i).
// For all devices. Selected in cpp/operators/reduction/scan.cpp.
#version 450
layout(local_size_x = 64) in;
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
#if CARRY
layout(binding = 2) readonly buffer Carry { ACCUMULATOR carry[]; };
#endif
layout(push_constant) uniform parameter {
  uint rows, splits, split_size;
  uint size;               // elements per row
  uint x_step, y_step;     // strides along a row
  uint exclusive, backwards;
  uint row[4], x_stride[4], y_stride[4];
  uint x_offset, y_offset;
} p;

void main() {
  const uint work_item = grid_invocation();
  if (work_item >= p.rows * p.splits) return;
  const uint split = work_item % p.splits;
  uint rest = work_item / p.splits, from = p.x_offset, to = p.y_offset;
  for (int axis = 3; axis >= 0; --axis) {
    const uint at = rest % p.row[axis];
    from += at * p.x_stride[axis];
    to += at * p.y_stride[axis];
    rest /= p.row[axis];
  }
  const uint end = min((split + 1u) * p.split_size, p.size);
#if CARRY
  ACCUMULATOR s = carry[work_item];
#else
  ACCUMULATOR s = START;
#endif
  for (uint i = split * p.split_size; i < end; ++i) {
    const uint at = p.backwards != 0u ? p.size - 1u - i : i;
#if !TOTALS
    if (p.exclusive != 0u) STORE(to + at * p.y_step, s);
#endif
    s = STEP(s, LOAD(from + at * p.x_step), i);
#if !TOTALS
    if (p.exclusive == 0u) STORE(to + at * p.y_step, s);
#endif
  }
#if TOTALS
  y[work_item] = s;
#endif
}
