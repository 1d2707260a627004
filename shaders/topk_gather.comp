// TopK: gathers the first elements of sorted rows, y[outer, j, inner] = x[outer, order[row, j], inner], or WRITE_INDICES: the order as
// int64.
//
// See include/contiguous_output.glsl for y. For all devices; selected in cpp/operators/sort/sort.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, inner;
  uint size;    // number of elements per row of y
  uint pitch;   // number of indices per row of `order`
#if !WRITE_INDICES
  uint x_size;  // number of elements per row of x
  uint x_offset;
#endif
  uint y_offset;
} p;
#include "include/contiguous_output.glsl"
layout(binding = 1) readonly buffer O { uint order[]; };
#if !WRITE_INDICES
layout(binding = 2) readonly buffer X { ELEMENT x[]; };
#endif

ELEMENT element(uint id) {
  const uint inner = id % p.inner, outer = id / p.inner / p.size;
  const uint at = order[(outer * p.inner + inner) * p.pitch + id / p.inner % p.size];
#if WRITE_INDICES
  return ELEMENT(at, 0u);
#else
  return LOAD(x, p.x_offset + (outer * p.x_size + at) * p.inner + inner);
#endif
}
