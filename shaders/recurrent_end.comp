// The state of a recurrent layer after its last step as an output, [direction][batch][unit] in any order of the first two.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer State { float state[]; };
layout(binding = 1) buffer Y { sfp y[]; };
layout(push_constant) uniform parameter {
  uint elements, first, width, units, batch;
  uint y_stride_d, y_stride_b;
  uint y_offset;
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  const uint unit = i % p.units, row = i / p.units;
  pm_store(y, p.y_offset + row / p.batch * p.y_stride_d + row % p.batch * p.y_stride_b + unit, state[p.first + row * p.width + unit]);
}
