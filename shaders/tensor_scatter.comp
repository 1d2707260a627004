// Elements of a cache [batches, .., size, inner], of which those from first[batch] on are `count` of an update; CIRCULAR: the axis is a
// ring. FIRST: there are such places, else they are 0.
#version 450
layout(push_constant) uniform parameter {
  uint elements, size, inner, count, prefixes;  // prefixes: of a batch
  uint x_offset, update_offset, first_offset, y_offset;
} p;
#include "include/dense.glsl"
layout(binding = 1) readonly buffer X { ELEMENT x[]; };
layout(binding = 2) readonly buffer U { ELEMENT update[]; };
#if FIRST
layout(binding = 3) readonly buffer F { uvec2 first[]; };
#endif

ELEMENT element(uint id) {
  const uint i = id % p.inner, at = id / p.inner % p.size, prefix = id / p.inner / p.size;
#if FIRST
  uint begin = first[p.first_offset + prefix / p.prefixes].x;
#else
  uint begin = 0u;
#endif
#if CIRCULAR
  begin %= p.size;
  const uint step = at >= begin ? at - begin : at + p.size - begin;
#else
  const uint step = at >= begin ? at - begin : p.size;
#endif
  if (step < p.count) return LOAD(update, p.update_offset + (prefix * p.count + step) * p.inner + i);
  return LOAD(x, p.x_offset + id);
}
