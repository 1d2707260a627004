// y[i] = float(x[i]) * scale: converts a vector of any storage type to float32. Used for biases, scales and statistics, which kernels
// accumulate in float.
//
// One invocation converts one element. For all devices; selected in cpp/operators/conv_gemm/weight_packing.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#if SOURCE_FLOAT
layout(binding = 0) readonly buffer X { float x[]; };
#define LOAD(i) x[i]
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
#define LOAD(i) pm_load(x, i)
#endif
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform parameter { uint count; float scale; uint x_offset; uint y_offset; } p;
void main() {
  const uint i = grid_invocation();
  if (i < p.count) y[p.y_offset + i] = LOAD(p.x_offset + i) * p.scale;
}
