// Bitonic sort of rows of (key, index) pairs, ascending by key, then by index.
//
// STAGE 0: sorts blocks in shared memory, as many per workgroup as fit, and keeps the first `kept` pairs of each.
// STAGE 1: exchanges pairs a stride apart in global memory, mirrored within their group with `mirror`.
// STAGE 2: all strides within a block, in shared memory.
// STAGE 3: for short rows; each element counts the elements that precede it, which gives its position, without barriers.
// FROM_X: stages 0 and 3 compute keys from strided rows of x; otherwise stage 0 reads pairs.
// A key is an element's bits in ascending order, one word or (BITS 64) two, inverted for descending order. NaN is larger than any number,
// and -0 equals 0.
//
// For all devices. Selected in cpp/operators/sort/sort.cpp.
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
#if STAGE == 3
layout(binding = 3) writeonly buffer YI { uint y_indices[]; };
#elif STAGE == 0
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
  uint count, blocks;  // number of pairs and blocks per row
  uint block;          // number of pairs per block, a power of two
  uint kept, pitch;    // number of pairs kept per block; number of pairs per output row
#if FROM_X
  uint inner;          // stride between the elements of a row
  uint x_offset;
#endif
#elif STAGE == 3
  uint count, kept, inner, x_offset;
#elif STAGE == 1
  uint pitch;          // number of pairs per row, a power of two
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
KEY load_key(uint i) {
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

#if STAGE == 0 || STAGE == 2
shared KEY keys[BLOCK];
shared uint indices[BLOCK];

// Compare-exchange of pairs `stride` apart; mirrored: the first of each 2 * stride with the last, and so on.
void exchange(uint pairs, uint stride, bool mirrored) {
  barrier();  // wait until all pairs of the previous step have been written
  for (uint k = gl_LocalInvocationID.x; k < pairs / 2u; k += gl_WorkGroupSize.x) {
    const uint at = k & (stride - 1u), group = (k - at) * 2u;  // stride is a power of two
    const uint low = group + at, high = mirrored ? group + 2u * stride - 1u - at : low + stride;
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
  // Number of blocks per workgroup, number of blocks in all rows, and first block of this workgroup.
  const uint blocks_per_group = BLOCK / p.block, total_blocks = p.rows * p.blocks, first = group * blocks_per_group;
  const uint local_blocks = first < total_blocks ? min(blocks_per_group, total_blocks - first) : 0u, pairs = local_blocks * p.block;
  for (uint k = gl_LocalInvocationID.x; k < pairs; k += gl_WorkGroupSize.x) {
    const uint block = first + k / p.block, row = block / p.blocks, at = block % p.blocks * p.block + k % p.block;
    KEY key = KEY_END;
    uint index = 0xffffffffu;
    if (at < p.count) {
#if FROM_X
      key = load_key((row / p.inner * p.count + at) * p.inner + row % p.inner);
      index = at;
#else
      key = x_keys[row * p.count + at];
      index = x_indices[row * p.count + at];
#endif
    }
    keys[k] = key;
    indices[k] = index;
  }
  for (uint half_size = 1u; half_size < p.block; half_size *= 2u) {
    exchange(pairs, half_size, true);
    for (uint stride = half_size / 2u; stride > 0u; stride /= 2u) exchange(pairs, stride, false);
  }
  barrier();
  for (uint k = gl_LocalInvocationID.x; k < local_blocks * p.kept; k += gl_WorkGroupSize.x) {
    const uint block = first + k / p.kept, from = k / p.kept * p.block + k % p.kept;
    const uint to = block / p.blocks * p.pitch + block % p.blocks * p.kept + k % p.kept;
    y_keys[to] = keys[from];
    y_indices[to] = indices[from];
  }
#elif STAGE == 3
  const uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (id >= p.rows * p.count) return;
  const uint inner = id % p.inner, outer = id / p.inner / p.count, position = id / p.inner % p.count, from = outer * p.count * p.inner + inner;
  const KEY key = load_key(id);
  uint before = 0u;
  for (uint k = 0u; k < p.count; ++k) before += uint(is_before(load_key(from + k * p.inner), k, key, position));
  if (before < p.kept) y_indices[(outer * p.inner + inner) * p.kept + before] = position;
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
  for (uint stride = BLOCK / 2u; stride > 0u; stride /= 2u) exchange(BLOCK, stride, false);
  barrier();
  for (uint k = gl_LocalInvocationID.x; k < BLOCK && inside; k += gl_WorkGroupSize.x) {
    y_keys[group * BLOCK + k] = keys[k];
    y_indices[group * BLOCK + k] = indices[k];
  }
#endif
}
