// Copies 32-bit words, four per invocation.
#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform parameter { uint words; uint x_offset; uint y_offset; } p;
void main() {
  const uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
  const uint begin = (group * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4u;
  const uint end = min(begin + 4u, p.words);
  for (uint i = begin; i < end; ++i) y[p.y_offset + i] = x[p.x_offset + i];
}
