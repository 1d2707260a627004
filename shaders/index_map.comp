// Copies elements from one strided tensor to another of the same (coalesced) shape, whatever they mean: transposes, slices, parts of
// a concatenation, broadcasts, depth to space. BITS: of an element (8, 16, 32, 64). WORDS: the target is dense and begins and ends
// on whole words, so an invocation makes one word; else elements below 32 bits are put into their word atomically.
// PAD: the source is smaller or larger, and what lies outside it is a constant (1), reflected (2), the edge (3) or repeated (4).
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
layout(push_constant) uniform parameter {
  uint elements;
  uint size[RANK];
  int x_stride[RANK];  // in elements; negative for slices that run backwards
  uint y_stride[RANK];
#if PAD
  int x_size[RANK];
  int before[RANK];    // elements before the source; negative: cut off
  uint value[2];       // the constant's bits
#else
  int x_first;         // element of the source at index 0
  uint y_first;
#endif
  uint x_offset, y_offset;
} p;

#if WORDS
#define ELEMENTS (32u / uint(BITS))
#else
#define ELEMENTS 1u
#endif

#if PAD
// The index within the source that stands for one outside it.
int inside(int i, int size) {
#if PAD == 2
  if (size < 2) return 0;
  i = abs(i) % (2 * (size - 1));
  return size - 1 - abs(size - 1 - i);
#elif PAD == 4
  return i < 0 ? size - 1 - (-1 - i) % size : i % size;  // % of negative numbers is undefined
#else
  return clamp(i, 0, size - 1);
#endif
}
#endif

// Where element `flat_index` comes from and goes to. False: it is the constant.
bool locate(uint flat_index, out uint from, out uint to) {
#if PAD
  int source = 0;
  uint target = 0u;
#else
  int source = p.x_first;
  uint target = p.y_first;
#endif
  bool found = true;
  for (int axis = RANK - 1; axis >= 0; --axis) {
    const uint at = flat_index % p.size[axis];
    flat_index /= p.size[axis];
    target += at * p.y_stride[axis];
#if PAD
    const int i = int(at) - p.before[axis], size = p.x_size[axis];
#if PAD == 1
    found = found && i >= 0 && i < size;
#endif
    source += inside(i, size) * p.x_stride[axis];
#else
    source += int(at) * p.x_stride[axis];
#endif
  }
  from = p.x_offset + uint(source);
  to = p.y_offset + target;
  return found;
}

#if BITS == 64
uvec2 element(bool found, uint i) {
#if PAD == 1
  if (!found) return uvec2(p.value[0], p.value[1]);
#endif
  return x[i];
}
#else
uint element(bool found, uint i) {
#if PAD == 1
  if (!found) return p.value[0];
#endif
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
  uint from, to;
#if WORDS && BITS < 32
  if (id * ELEMENTS >= p.elements) return;
  uint word = 0u, first = 0u;
  for (uint i = 0u; i < ELEMENTS; ++i) {
    if (id * ELEMENTS + i >= p.elements) break;
    const bool found = locate(id * ELEMENTS + i, from, to);
    if (i == 0u) first = to;
    word |= element(found, from) << (i * uint(BITS));
  }
  y[first / ELEMENTS] = word;
#else
  if (id >= p.elements) return;
  const bool found = locate(id, from, to);
#if BITS >= 32
  y[to] = element(found, from);
#elif BITS == 16
  pm_store_u16(y, to, element(found, from));
#else
  pm_store_u8(y, to, element(found, from));
#endif
#endif
}
