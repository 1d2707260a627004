// Finds indices that are out of range: y = {bitwise complement of the position of the first one, their number, low word of the first one,
// its high word}; zeros if there is none.
//
// indices: int32 or int64, or FLOAT_INDICES: floats (y then has their bits). Index k selects on an axis of size[k % TUPLE] elements.
// from_end: negative indices count from the end. Positions and counts are combined atomically.
// One invocation checks one index. STORE_INDEX: a second dispatch with a single invocation stores the words of the first bad index.
//
// For all devices. Used by cpp/operators/compiled/index_check.cpp (check_indices=True).
#version 450
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint elements, index_words, from_end;
  uint size[TUPLE];
  uint indices_offset, y_offset;
} p;
#include "include/grid.glsl"
layout(binding = 0) buffer Y { uint y[]; };
#if FLOAT_INDICES
#include "include/tensor.glsl"
layout(binding = 1) readonly buffer I { sfp indices[]; };
#else
#include "include/indices.glsl"
#endif
const uint kUnlimited = 0xffffffffu, kNotAnIndex = 0xfffffffeu;

bool is_out_of_range(uint id) {
  const uint size = p.size[id % TUPLE];
  if (size == kNotAnIndex) return false;
#if FLOAT_INDICES
  const float at = pm_load(indices, p.indices_offset + id);
  return !(at >= 0.0 && (size == kUnlimited || at < float(size)));  // NaN is out of range
#else
  const bool counts_back = indices[(p.indices_offset + id) * p.index_words + p.index_words - 1u] < 0;
  if (counts_back && p.from_end == 0u) return true;
  return size != kUnlimited && index_at(id, int(size)) < 0;
#endif
}

void main() {
  const uint id = grid_invocation();
#if STORE_INDEX
  if (id > 0u || y[p.y_offset + 1u] == 0u) return;
  const uint first = p.indices_offset + ~y[p.y_offset];
#if FLOAT_INDICES
  y[p.y_offset + 2u] = floatBitsToUint(pm_load(indices, first));
#else
  const uint word = first * p.index_words;
  y[p.y_offset + 2u] = uint(indices[word]);
  y[p.y_offset + 3u] = uint(p.index_words == 2u ? indices[word + 1u] : indices[word] >> 31);
#endif
#else
  if (id >= p.elements || !is_out_of_range(id)) return;
  atomicMax(y[p.y_offset], ~id);
  atomicAdd(y[p.y_offset + 1u], 1u);
#endif
}
