// Elementwise expressions over broadcast operands of any dtypes: the one kernel of the map rows. The lowering gives, as macros,
//   DECLARATIONS  the bindings t0, t1, .. and y;   LOADS  local variables from the elements at[0], at[1], ..;
//   RESULT_TYPE, RESULT  the expression;           STORE(i, v), STORE4(i, v)  one element, and four from a multiple of four on.
// FLAT: every operand is dense in the output's order or one element. DENSE: the output is. An invocation makes four elements where
// the output is dense, else one. RANK: axes that the others walk.
// WIDE: elements of the result have 64 bits, so that a quad is larger than a tensor's padding.
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
DECLARATIONS
layout(push_constant) uniform parameter {
  uint elements;
#if FLAT
  uint t_stride[INPUTS];  // 1, or 0 for a single element
#else
  uint size[RANK];
  uint t_stride[INPUTS * RANK];
  uint y_stride[RANK];
#endif
  OFFSETS
  uint y_offset;
} p;

#ifndef EPILOGUE
#define EPILOGUE(x) (x)
#endif

uint at[INPUTS];

RESULT_TYPE compute() {
  LOADS
  return EPILOGUE(RESULT);
}

RESULT_TYPE element(uint flat_index) {
#if FLAT
  for (int i = 0; i < INPUTS; ++i) at[i] = flat_index * p.t_stride[i];
#else
  for (int i = 0; i < INPUTS; ++i) at[i] = 0u;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint k = flat_index % p.size[axis];
    flat_index /= p.size[axis];
    for (int i = 0; i < INPUTS; ++i) at[i] += k * p.t_stride[i * RANK + axis];
  }
#endif
  return compute();
}

void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#if DENSE
  const uint first = id * 4u;
  if (first >= p.elements) return;
  if (first + 4u <= p.elements) {
    RESULT_TYPE v[4];
    for (uint i = 0u; i < 4u; ++i) v[i] = element(first + i);
    STORE4(first, v);
  } else {
    // The last, partial quad: elements past the end belong to the tensor's padding.
#if WIDE
    for (uint k = first; k < p.elements; ++k) STORE(p.y_offset + k, element(k));
#else
    RESULT_TYPE v[4];
    for (uint i = 0u; i < 4u; ++i) v[i] = element(min(first + i, p.elements - 1u));
    STORE4(first, v);
#endif
  }
#else
  if (id >= p.elements) return;
  uint rest = id, to = p.y_offset;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    to += rest % p.size[axis] * p.y_stride[axis];
    rest /= p.size[axis];
  }
  const RESULT_TYPE v = element(id);
  STORE(to, v);
#endif
}
