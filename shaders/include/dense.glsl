// Makes a dense tensor of elements of BITS bits (8, 16, 32, 64), whatever they mean: an invocation makes one word, or one element of
// 64 bits. Before this stands the parameter block `p` with elements and y_offset; after it the kernel defines element().
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if BITS == 64
#define ELEMENT uvec2
#else
#define ELEMENT uint
#endif
#if BITS == 16
#define LOAD(x, i) pm_load_u16(x, i)
#elif BITS == 8
#define LOAD(x, i) pm_load_u8(x, i)
#else
#define LOAD(x, i) x[i]
#endif
layout(binding = 0) writeonly buffer Y { ELEMENT y[]; };

ELEMENT element(uint id);

void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#if BITS >= 32
  if (id < p.elements) y[p.y_offset + id] = element(id);
#else
  const uint lanes = 32u / uint(BITS);
  if (id * lanes >= p.elements) return;
  uint word = 0u;
  for (uint i = 0u; i < lanes && id * lanes + i < p.elements; ++i) word |= element(id * lanes + i) << (i * uint(BITS));
  y[p.y_offset / lanes + id] = word;
#endif
}
