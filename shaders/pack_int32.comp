// y[i] = int32(x[i * step]): packs zero points and biases, which kernels accumulate as int32. A step of 0 repeats the first element.
//
// One invocation converts one element; LOAD(t, i) reads an element of the source's dtype. For all devices; selected in
// cpp/operators/conv_gemm/int8_zero_points.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };
layout(push_constant) uniform parameter { uint count; uint step; uint x_offset; } p;
void main() {
  const uint i = grid_invocation();
  if (i < p.count) y[i] = int(LOAD(x, p.x_offset + i * p.step));
}
