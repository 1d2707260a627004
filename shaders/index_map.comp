// Copies elements from one strided tensor to another of the same (coalesced) shape, whatever they mean: transposes, slices, parts of
// a concatenation, broadcasts, depth to space. BITS: of an element (8, 16, 32, 64). WORDS: the target is dense and begins and ends
// on whole words, so an invocation makes one word; else elements below 32 bits are put into their word atomically.
#version 450
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#if BITS == 64
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
#endif
#define RANK 6
layout(push_constant) uniform parameter {
  uint elements;
  uint size[RANK];
  int x_stride[RANK];  // in elements; negative for slices that run backwards
  uint y_stride[RANK];
  int x_first;         // element of the source at index 0
  uint y_first;
  uint x_offset, y_offset;
} p;

#if WORDS
#define ELEMENTS (32u / uint(BITS))
#else
#define ELEMENTS 1u
#endif

void locate(uint flat_index, out uint from, out uint to) {
  int source = p.x_first;
  uint target = p.y_first;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint at = flat_index % p.size[axis];
    flat_index /= p.size[axis];
    source += int(at) * p.x_stride[axis];
    target += at * p.y_stride[axis];
  }
  from = p.x_offset + uint(source);
  to = p.y_offset + target;
}

#if BITS != 64
uint load_bits(uint i) {
#if BITS == 32
  return x[i];
#elif BITS == 16
  return pm_load_u16(x, i);
#else
  return pm_load_u8(x, i);
#endif
}
#endif

void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#if BITS == 64 || BITS == 32
  if (id >= p.elements) return;
  uint from, to;
  locate(id, from, to);
  y[to] = x[from];
#elif WORDS
  if (id * ELEMENTS >= p.elements) return;
  uint word = 0u, first = 0u;
  for (uint i = 0u; i < ELEMENTS; ++i) {
    if (id * ELEMENTS + i >= p.elements) break;
    uint from, to;
    locate(id * ELEMENTS + i, from, to);
    if (i == 0u) first = to;
    word |= load_bits(from) << (i * uint(BITS));
  }
  y[first / ELEMENTS] = word;
#else
  if (id >= p.elements) return;
  uint from, to;
  locate(id, from, to);
#if BITS == 16
  pm_store_u16(y, to, load_bits(from));
#else
  pm_store_u8(y, to, load_bits(from));
#endif
#endif
}
