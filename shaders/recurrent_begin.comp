// The state of a recurrent layer before its first step: rows of `width` elements, `units` of them those of x (or zero), from `first` on.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if HAS_X
layout(binding = 0) readonly buffer X { sfp x[]; };
#endif
layout(binding = 1) writeonly buffer State { float state[]; };
layout(push_constant) uniform parameter {
  uint elements, first, width, units, batch;
  uint x_stride_d, x_stride_b;
  uint x_offset;
} p;
void main() {
  const uint i = grid_invocation();
  if (i >= p.elements) return;
  float v = 0.0;
#if HAS_X
  const uint unit = i % p.width, row = i / p.width;
  if (unit < p.units) v = pm_load(x, p.x_offset + row / p.batch * p.x_stride_d + row % p.batch * p.x_stride_b + unit);
#endif
  state[p.first + i] = v;
}
