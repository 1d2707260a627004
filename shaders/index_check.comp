// Finds the indices that are out of range: y = {~ the position of the first, how many, its low word, its high word}, zeros where none is.
// An index at k, k + TUPLE, .. is of an axis of size[k % TUPLE]; from_end: negative ones count from its end. TELLS: a single invocation
// that adds the two words to the others.
#version 450
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint elements, index_words, from_end;
  uint size[TUPLE];
  uint indices_offset, y_offset;
} p;
#include "include/grid.glsl"
#include "include/indices.glsl"
layout(binding = 0) buffer Y { uint y[]; };

void main() {
  const uint id = grid_invocation();
#if TELLS
  if (id > 0u || y[p.y_offset + 1u] == 0u) return;
  const uint word = (p.indices_offset + ~y[p.y_offset]) * p.index_words;
  y[p.y_offset + 2u] = uint(indices[word]);
  y[p.y_offset + 3u] = uint(p.index_words == 2u ? indices[word + 1u] : indices[word] >> 31);
#else
  if (id >= p.elements) return;
  const uint word = (p.indices_offset + id) * p.index_words;
  const bool counts_back = indices[word + p.index_words - 1u] < 0;
  if (index_at(id, int(p.size[id % TUPLE])) >= 0 && (p.from_end == 1u || !counts_back)) return;
  atomicMax(y[p.y_offset], ~id);
  atomicAdd(y[p.y_offset + 1u], 1u);
#endif
}
