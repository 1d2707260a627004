// Elementwise expressions over broadcast operands of any dtypes: y = RESULT(t0, t1, ...), the kernel of all elementwise operators and their
// fusions.
//
// The lowering defines these macros:
//   DECLARATIONS  the bindings t0, t1, ... and y;     RESULT_TYPE, RESULT  the expression over local variables, each operation rounded;
//   APPLY_EPILOGUE(v)   the fused epilogue;                 LOADS                the variables, from the elements at[0], at[1], ...;
//   STORE(i, v)   one element;                        STORE4(i, v, count)  the first `count` of four, at a multiple of four.
// DENSE: y is dense, and an invocation computes NUM_VEC4 groups of four elements, else one element. RANK: number of axes to index; 0 if
// every operand is a single element or dense in the order of y. WHOLE_VEC4: four adjacent elements share a row of the last axis and are
// located once:
//   VEC4_OPERANDS    arrays with the operands of four elements, per group;  LOAD_VEC4_OPERANDS  fills group k from at[0], at[1], ...;
//   SELECT_ELEMENT         local variables of element j of group k.
//
// For all devices. Selected in cpp/operators/elementwise/elementwise.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
DECLARATIONS
layout(push_constant) uniform parameter {
  uint elements;
#if RANK
  uint size[RANK];
  uint t_stride[INPUTS * RANK];
#if !DENSE
  uint y_stride[RANK];
#endif
#endif
  OFFSETS
  uint y_offset;
} p;


uint at[INPUTS];

void compute_operand_indices(uint flat_index) {
#if RANK
  for (int i = 0; i < INPUTS; ++i) at[i] = 0u;
  for (int axis = RANK - 1; axis > 0; --axis) {
    const uint next = flat_index / p.size[axis], k = flat_index - next * p.size[axis];
    flat_index = next;
    for (int i = 0; i < INPUTS; ++i) at[i] += k * p.t_stride[i * RANK + axis];
  }
  for (int i = 0; i < INPUTS; ++i) at[i] += flat_index * p.t_stride[i * RANK];
#else
  for (int i = 0; i < INPUTS; ++i) at[i] = flat_index;
#endif
}

RESULT_TYPE compute_element(uint flat_index) {
  compute_operand_indices(flat_index);
  LOADS
  precise RESULT_TYPE result = RESULT;
  return APPLY_EPILOGUE(result);
}

#if DENSE
#if WHOLE_VEC4
VEC4_OPERANDS

RESULT_TYPE compute_vec4_element(uint k, uint j) {
  SELECT_ELEMENT
  precise RESULT_TYPE result = RESULT;
  return APPLY_EPILOGUE(result);
}

// Computes whole vec4s. All are loaded before the first store.
void store_vec4s(uint first, uint stride) {
  [[unroll]] for (uint k = 0u; k < NUM_VEC4; ++k) {
    compute_operand_indices(first + k * stride);
    LOAD_VEC4_OPERANDS
  }
  [[unroll]] for (uint k = 0u; k < NUM_VEC4; ++k) {
    RESULT_TYPE v[4];
    for (uint j = 0u; j < 4u; ++j) v[j] = compute_vec4_element(k, j);
    STORE4(first + k * stride, v, 4u);
  }
}
#endif

void store_vec4(uint first) {
  RESULT_TYPE v[4];
  for (uint j = 0u; j < 4u; ++j) v[j] = compute_element(min(first + j, p.elements - 1u));
  STORE4(first, v, min(p.elements - first, 4u));
}
#endif

void main() {
  const uint group = grid_group();
#if DENSE
  const uint first = (group * NUM_VEC4 * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4u, stride = gl_WorkGroupSize.x * 4u;
#if WHOLE_VEC4
  if (first + (NUM_VEC4 - 1u) * stride + 4u <= p.elements) {
    store_vec4s(first, stride);
    return;
  }
#endif
  for (uint k = 0u; k < NUM_VEC4 && first + k * stride < p.elements; ++k) store_vec4(first + k * stride);
#else
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (id >= p.elements) return;
  uint rest = id, to = p.y_offset;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint next = rest / p.size[axis];
    to += (rest - next * p.size[axis]) * p.y_stride[axis];
    rest = next;
  }
  const RESULT_TYPE v = compute_element(id);
  STORE(to, v);
#endif
}
