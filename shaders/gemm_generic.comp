// GEMM for elements that the other kernels do not accept (doubles, integers) and for any strides: y = alpha * a b + beta * c.
//
// The lowering defines TYPE, STORE(i, v), RESULT(v), NUMBER(words) and, for each tensor, its element type (A_ELEMENT ..) and load
// (LOAD_A(t, i) ..). Two batch axes; strides are 0 on axes that a tensor lacks.
// One invocation computes one element, in a loop over K.
//
// For all devices, as the general case. Selected in cpp/operators/conv_gemm/generic_gemm.cpp, fused_conv_gemm_operators.cpp and
// gemm_softmax.cpp.
#version 450
layout(local_size_x = 64) in;
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
layout(binding = 0) readonly buffer A { A_ELEMENT a[]; };
layout(binding = 1) readonly buffer B { B_ELEMENT b[]; };
#if ADDS
layout(binding = 3) readonly buffer C { C_ELEMENT c[]; };
#endif
layout(binding = 2) buffer Y { Y_ELEMENT y[]; };
// Sizes and strides of the rows, the columns and two batch axes; a stride is 0 if the tensor lacks the axis.
layout(push_constant) uniform parameter {
  uint elements, k_size;
  uint size[4];  // axes: batch, batch, rows, columns
  uint a_stride[3], a_step;
  uint b_stride[3], b_step;  // axes: batch, batch, columns
  uint y_stride[4];
#if ADDS
  uint c_stride[2];
  uint c_offset;
#endif
  uint alpha[2], beta[2];
  uint a_offset, b_offset, y_offset;
} p;

void main() {
  const uint id = grid_invocation();
  if (id >= p.elements) return;
  uint rest = id, at[4];
  for (int axis = 3; axis >= 0; --axis) {
    at[axis] = rest % p.size[axis];
    rest /= p.size[axis];
  }
  uint from_a = p.a_offset + at[0] * p.a_stride[0] + at[1] * p.a_stride[1] + at[2] * p.a_stride[2];
  uint from_b = p.b_offset + at[0] * p.b_stride[0] + at[1] * p.b_stride[1] + at[3] * p.b_stride[2];
  TYPE sum = TYPE(0);
  for (uint k = 0u; k < p.k_size; ++k) {
    sum += LOAD_A(a, from_a) * LOAD_B(b, from_b);
    from_a += p.a_step;
    from_b += p.b_step;
  }
  sum *= NUMBER(p.alpha);
#if ADDS
  sum += NUMBER(p.beta) * LOAD_C(c, p.c_offset + at[2] * p.c_stride[0] + at[3] * p.c_stride[1]);
#endif
  STORE(p.y_offset + at[0] * p.y_stride[0] + at[1] * p.y_stride[1] + at[2] * p.y_stride[2] + at[3] * p.y_stride[3], RESULT(sum));
}
