// y[i, j, ...] = x[table_0[i], table_1[j], ...]: gathers along each axis by a table of indices. A table entry below 0 gives `value`.
//
// tables: int32; table[axis] is the start of an axis's table, or -1 if the axis has none. See include/contiguous_output.glsl for y.
// For all devices. Selected in cpp/operators/common/table_gather.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements;
  uint size[RANK];
  uint stride[RANK];  // strides of x
  int table[RANK];    // start of the axis's table; -1: the axis has no table
  uint value[2];      // bits of an element
  uint x_offset, y_offset, tables_offset;
} p;
#include "include/contiguous_output.glsl"
layout(binding = 1) readonly buffer T { int tables[]; };
layout(binding = 2) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  uint offset = p.x_offset;
  bool found = true;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    int at = int(id % p.size[axis]);
    id /= p.size[axis];
    if (p.table[axis] >= 0) at = tables[p.tables_offset + uint(p.table[axis] + at)];
    found = found && at >= 0;
    offset += uint(max(at, 0)) * p.stride[axis];
  }
#if BITS == 64
  return found ? x[offset] : uvec2(p.value[0], p.value[1]);
#else
  return found ? LOAD(x, offset) : p.value[0];
#endif
}
