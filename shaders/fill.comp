// y = value: fills a dense tensor with one value. DIAGONAL: matrices with the value on diagonal `k` and 0 elsewhere.
//
// See include/contiguous_output.glsl for y: an invocation writes PIECES words. For all devices; used for ConstantOfShape, EyeLike and
// sorting.
#version 450
layout(push_constant) uniform parameter {
  uint elements;
  uint value[2];  // bits of an element
#if DIAGONAL
  uint columns;
  int k;
#endif
  uint y_offset;
} p;
#include "include/contiguous_output.glsl"

ELEMENT element(uint id) {
#if DIAGONAL
  if (int(id % p.columns) - int(id / p.columns) != p.k) return ELEMENT(0);
#endif
#if BITS == 64
  return uvec2(p.value[0], p.value[1]);
#else
  return p.value[0];
#endif
}
