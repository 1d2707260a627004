// Gather along one axis: y[outer, index, inner] = x[outer, indices[index], inner], for elements of 8 to 64 bits; indices are int32 or
// the low words of int64, negative ones count from the end. An index out of range gives element 0: the host cannot know it here.
#version 450
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if BITS == 64
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 2) writeonly buffer Y { uvec2 y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 2) buffer Y { uint y[]; };
#endif
layout(binding = 1) readonly buffer I { int indices[]; };
layout(push_constant) uniform parameter {
  uint elements, inner, index_count;
  int size;
  uint index_words;  // 1 for int32, 2 for int64
  uint x_offset, indices_offset, y_offset;
} p;
uint source_of(uint id) {
  const uint inner = id % p.inner, row = id / p.inner;
  int at = indices[(p.indices_offset + row % p.index_count) * p.index_words];
  at = at < 0 ? at + p.size : at;
  at = at < 0 || at >= p.size ? 0 : at;
  return p.x_offset + (row / p.index_count * uint(p.size) + uint(at)) * p.inner + inner;
}
void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#if BITS >= 32
  if (id < p.elements) y[p.y_offset + id] = x[source_of(id)];
#else
  const uint lanes = 32u / uint(BITS);
  if (id * lanes >= p.elements) return;
  uint word = 0u;
  for (uint i = 0u; i < lanes && id * lanes + i < p.elements; ++i) {
#if BITS == 16
    word |= pm_load_u16(x, source_of(id * lanes + i)) << (i * 16u);
#else
    word |= pm_load_u8(x, source_of(id * lanes + i)) << (i * 8u);
#endif
  }
  y[(p.y_offset + id * lanes) / lanes] = word;
#endif
}
