// Softmax over the middle axis of [outer, size, inner] from its columns' largest elements and the sums of exponentials relative to them:
// y = exp(x - largest) * term, where term is one over the sum, or with LOGARITHM y = x - largest - term, where it is the sum's logarithm.
// An invocation makes PM_GRAIN fours of neighbouring columns.
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) readonly buffer Columns { vec4 columns[]; };  // the largest of each, then the term of each
layout(binding = 2) writeonly buffer Y { sfpvec4 y[]; };
layout(push_constant) uniform parameter {
  uint quads, size;
  uint inner, terms;  // in fours: columns side by side, and where the terms begin
  uint x_offset, columns_offset, y_offset;
} p;
void main() {
  const uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  for (uint k = 0u; k < PM_GRAIN; ++k) {
    const uint i = (group * PM_GRAIN + k) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= p.quads) return;
    const uint row = i / p.inner, column = p.columns_offset / 4u + row / p.size * p.inner + (i - row * p.inner);
    const vec4 v = pm_load_vec4(x, p.x_offset / 4u + i) - columns[column], term = columns[p.terms + column];
#if LOGARITHM
    pm_store_vec4(y, p.y_offset / 4u + i, v - term);
#else
    pm_store_vec4(y, p.y_offset / 4u + i, exp(v) * term);
#endif
  }
}
