// first, first + step, ..: integers, floats and doubles, whose bits come as two words, low one first.
#version 450
#include "include/tensor.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(binding = 0) buffer Y { Y_TYPE y[]; };
layout(push_constant) uniform parameter {
  uint elements;
  uint first[2], step[2];
  uint y_offset;
} p;
void main() {
  const uint i = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (i >= p.elements) return;
  STORE(p.y_offset + i, VALUE(p.first) + COUNT(i) * VALUE(p.step));
}
