// Sorts rows of (key, index) pairs upwards by key, equal keys by index. STAGE 0: each workgroup sorts a block of a row and keeps its
// first `kept` pairs. STAGE 1: pairs a stride apart are put in order, mirrored in their group with `mirror`. STAGE 2: as STAGE 1 for
// all strides within a block. FROM_X: STAGE 0 makes the keys from the elements of x, strided rows; else it reads pairs.
// A key is an element's bits brought into ascending order, as one word or (BITS 64) two, inverted for the largest first. NaN counts as
// larger than any number, -0 as 0.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#define BLOCK 1024u
layout(local_size_x = WORKGROUP) in;
#if BITS == 64
#define KEY uvec2
#define KEY_END uvec2(0xffffffffu)
#else
#define KEY uint
#define KEY_END 0xffffffffu
#endif
#if FROM_X
#if BITS == 64
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
#endif
#if STAGE == 0
#if !FROM_X
layout(binding = 0) readonly buffer XK { KEY x_keys[]; };
layout(binding = 1) readonly buffer XI { uint x_indices[]; };
#endif
layout(binding = 2) writeonly buffer YK { KEY y_keys[]; };
layout(binding = 3) writeonly buffer YI { uint y_indices[]; };
#else
layout(binding = 2) buffer YK { KEY y_keys[]; };
layout(binding = 3) buffer YI { uint y_indices[]; };
#endif
layout(push_constant) uniform parameter {
  uint rows;
#if STAGE == 0
  uint count, blocks;  // pairs and blocks of a row
  uint kept, pitch;    // pairs that a block gives, and a row of them
#if FROM_X
  uint inner;          // rows that lie next to each other: elements between those of one row
  uint x_offset;
#endif
#elif STAGE == 1
  uint pitch;          // pairs of a row, a power of two
  uint stride, mirror;
#else
  uint pitch;
#endif
} p;

bool is_before(KEY a, uint i, KEY b, uint j) {
#if BITS == 64
  if (a.y != b.y) return a.y < b.y;
  return a.x != b.x ? a.x < b.x : i < j;
#else
  return a != b ? a < b : i < j;
#endif
}

#if FROM_X
KEY key_of(uint i) {
  i += p.x_offset;
#if BITS == 64
  uvec2 v = x[i];
#if KIND == 2
  const uint size = v.y & 0x7fffffffu;
  if (size > 0x7ff00000u || (size == 0x7ff00000u && v.x != 0u)) v = uvec2(0xffffffffu);
  else if ((size | v.x) == 0u) v = uvec2(0u, 0x80000000u);
  else v = (v.y >> 31) != 0u ? ~v : uvec2(v.x, v.y | 0x80000000u);
#elif KIND == 1
  v.y ^= 0x80000000u;
#endif
#else
#if BITS == 8
  uint v = KIND == 1 ? uint(pm_load_i8(x, i)) ^ 0x80000000u : pm_load_u8(x, i);
#elif BITS == 16 && KIND == 1
  uint v = uint(pm_load_i16(x, i)) ^ 0x80000000u;
#elif BITS == 16 && KIND == 0
  uint v = pm_load_u16(x, i);
#else
#if BITS == 16
  uint v = floatBitsToUint(UNPACK(pm_load_u16(x, i)));
#else
  uint v = x[i];
#endif
#if KIND == 2
  const uint size = v & 0x7fffffffu;
  v = size > 0x7f800000u ? 0xffffffffu : size == 0u ? 0x80000000u : (v >> 31) != 0u ? ~v : v | 0x80000000u;
#elif KIND == 1
  v ^= 0x80000000u;
#endif
#endif
#endif
  return LARGEST ? ~v : v;
}
#endif

#if STAGE != 1
shared KEY keys[BLOCK];
shared uint indices[BLOCK];

// Puts the pairs of a block in order that are `stride` apart; mirrored: the first of a group of 2 * stride with its last, and so on.
void exchange(uint stride, bool mirrored) {
  barrier();
  for (uint k = gl_LocalInvocationID.x; k < BLOCK / 2u; k += gl_WorkGroupSize.x) {
    const uint low = k / stride * 2u * stride + k % stride;
    const uint high = mirrored ? low - k % stride + 2u * stride - 1u - k % stride : low + stride;
    const KEY a = keys[low], b = keys[high];
    const uint i = indices[low], j = indices[high];
    if (is_before(b, j, a, i)) {
      keys[low] = b;
      keys[high] = a;
      indices[low] = j;
      indices[high] = i;
    }
  }
}
#endif

void main() {
  const uint group = grid_group();
#if STAGE == 0
  const uint row = group / p.blocks, block = group % p.blocks;
  for (uint k = gl_LocalInvocationID.x; k < BLOCK; k += gl_WorkGroupSize.x) {
    const uint at = block * BLOCK + k;
    KEY key = KEY_END;
    uint index = 0xffffffffu;
    if (row < p.rows && at < p.count) {
#if FROM_X
      key = key_of((row / p.inner * p.count + at) * p.inner + row % p.inner);
      index = at;
#else
      key = x_keys[row * p.count + at];
      index = x_indices[row * p.count + at];
#endif
    }
    keys[k] = key;
    indices[k] = index;
  }
  for (uint half_size = 1u; half_size < BLOCK; half_size *= 2u) {
    exchange(half_size, true);
    for (uint stride = half_size / 2u; stride > 0u; stride /= 2u) exchange(stride, false);
  }
  barrier();
  if (row >= p.rows) return;
  for (uint k = gl_LocalInvocationID.x; k < p.kept; k += gl_WorkGroupSize.x) {
    y_keys[row * p.pitch + block * p.kept + k] = keys[k];
    y_indices[row * p.pitch + block * p.kept + k] = indices[k];
  }
#elif STAGE == 1
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x, half_pitch = p.pitch / 2u;
  if (id >= p.rows * half_pitch) return;
  const uint k = id % half_pitch, first = id / half_pitch * p.pitch + k / p.stride * 2u * p.stride, at = k % p.stride;
  const uint low = first + at, high = first + (p.mirror != 0u ? 2u * p.stride - 1u - at : p.stride + at);
  const KEY a = y_keys[low], b = y_keys[high];
  const uint i = y_indices[low], j = y_indices[high];
  if (!is_before(b, j, a, i)) return;
  y_keys[low] = b;
  y_keys[high] = a;
  y_indices[low] = j;
  y_indices[high] = i;
#else
  const bool inside = group < p.rows * (p.pitch / BLOCK);
  for (uint k = gl_LocalInvocationID.x; k < BLOCK && inside; k += gl_WorkGroupSize.x) {
    keys[k] = y_keys[group * BLOCK + k];
    indices[k] = y_indices[group * BLOCK + k];
  }
  for (uint stride = BLOCK / 2u; stride > 0u; stride /= 2u) exchange(stride, false);
  barrier();
  for (uint k = gl_LocalInvocationID.x; k < BLOCK && inside; k += gl_WorkGroupSize.x) {
    y_keys[group * BLOCK + k] = keys[k];
    y_indices[group * BLOCK + k] = indices[k];
  }
#endif
}
