// y[y_offset + i] = x[x_offset + i] for 32-bit words. ELEMENT_BITS: size of the elements that the offsets count.
//
// An invocation copies four words that are a workgroup size apart, so that adjacent invocations access adjacent words. For all devices;
// used by cpp/dispatch/copy.cpp and for copies of caches and resources.
#version 450
#include "include/grid.glsl"
layout(local_size_x = LOCAL_SIZE) in;
#ifndef ELEMENT_BITS
#define ELEMENT_BITS 32u
#endif
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter { uint words; uint x_offset; uint y_offset; } p;
void main() {
  const uint group = grid_group();
  const uint first = group * gl_WorkGroupSize.x * 4u + gl_LocalInvocationID.x;
  for (uint k = 0u; k < 4u; ++k) {
    const uint i = first + k * gl_WorkGroupSize.x;
    if (i < p.words) y[p.y_offset * ELEMENT_BITS / 32u + i] = x[p.x_offset * ELEMENT_BITS / 32u + i];
  }
}
