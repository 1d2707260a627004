// Gather, GatherND and GatherElements: y[id] = x[the element selected by the indices], for elements of 8 to 128 bits.
//
// See include/gather_scatter.glsl for addressing and include/contiguous_output.glsl for y. An index out of range counts as 0, since the
// host cannot check it.
// PARTS: only a range of x is bound; elements from outside it become 0, and the dispatches of all ranges are combined with OR.
//
// For all devices. Selected in cpp/operators/index/gather_scatter.cpp.
#version 450
#include "include/gather_scatter.glsl"
#include "include/contiguous_output.glsl"
layout(binding = 2) readonly buffer X { ELEMENT x[]; };

ELEMENT element(uint id) {
  uint offset;
  find_offset(id, offset);
#if PARTS
  offset -= p.first_offset;  // wraps around if it precedes the bound range
  if (offset >= p.num_offsets) return ELEMENT(0);
#endif
  return LOAD(x, p.x_offset / SCALE + offset);
}
