// Requantises int32 sums to 8 bits: y = saturate(round(sum * (a_scale * b_scale / y_scale)) + y_zero).
//
// x: int32, dense over four axes. Scales and zero points have strides over these axes, 0 if they lack an axis. An invocation writes the
// four elements of a word.
// For all devices. Selected in cpp/operators/conv_gemm/requantize.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { int x[]; };
layout(binding = 1) readonly buffer AScale { float a_scale[]; };
layout(binding = 2) readonly buffer BScale { float b_scale[]; };
layout(binding = 3) readonly buffer YScale { float y_scale[]; };
layout(binding = 4) readonly buffer YZero { int y_zero[]; };
layout(binding = 5) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter {
  uint elements;
  uint size[4];
  uint a_stride[4], b_stride[4], y_stride[4];
  int lowest, highest;
  uint y_offset;
} p;

int quantize_element(uint i) {
  uint rest = i, a = 0u, b = 0u, c = 0u;
  for (int axis = 3; axis >= 0; --axis) {
    const uint at = rest % p.size[axis];
    rest /= p.size[axis];
    a += at * p.a_stride[axis];
    b += at * p.b_stride[axis];
    c += at * p.y_stride[axis];
  }
  precise float scales = a_scale[a] * b_scale[b];
  const float v = pm_round_even(float(x[i]) * pm_divide(scales, y_scale[c])), zero = float(y_zero[c]);
  const float lowest = float(p.lowest) - zero, highest = float(p.highest) - zero;
  return !(v > lowest) ? p.lowest : !(v < highest) ? p.highest : int(v) + y_zero[c];
}

void main() {
  const uint first = grid_invocation() * 4u;
  if (first >= p.elements) return;
  uint word = 0u;
  for (uint k = 0u; k < 4u && first + k < p.elements; ++k) word |= (uint(quantize_element(first + k)) & 0xffu) << 8u * k;
  y[p.y_offset / 4u + first / 4u] = word;
}
