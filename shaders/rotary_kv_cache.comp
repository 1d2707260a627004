// RoPE of queries and keys (see rotary_embedding.comp), and update of a KV cache from row firsts[batch item].
//
// q, k, v: [batch, heads, rows, size], any strides except for the last axis. keys, values: [batch, groups, capacity, size]; rows past the
// capacity are dropped. y: the rotated queries, dense. places: int64 position of each row. An invocation writes two neighbouring elements.
// For all devices. Selected in cpp/operators/attention/rotary_kv_cache.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/cache_row.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pairs, heads, groups, rows, size, turned, table_rows, room;
  uint q_batch, q_head, q_row;
  uint k_batch, k_head, k_row;
  uint v_batch, v_head, v_row;
  uint q_offset, k_offset, v_offset, cosines_offset, sines_offset, places_offset, firsts_offset, y_offset, keys_offset, values_offset;
} p;
layout(binding = 0) readonly buffer Q { sfp q[]; };
layout(binding = 1) readonly buffer K { sfp k[]; };
layout(binding = 2) readonly buffer V { sfp v[]; };
layout(binding = 3) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 4) readonly buffer Sines { sfp sines[]; };
layout(binding = 5) readonly buffer Places { ivec2 places[]; };
layout(binding = 6) readonly buffer Firsts { ivec2 firsts[]; };
layout(binding = 7) buffer Y { sfp y[]; };
layout(binding = 8) buffer Keys { sfp keys[]; };
layout(binding = 9) buffer Values { sfp values[]; };

// Returns elements `column` and `column` + 1 of the row of x that starts at `from`, rotated by row `table` of the cos/sin tables.
#define TURNED_PAIR(name, x)                                                                                          \
  vec2 name(uint from, uint column, uint table) {                                                                     \
    const uint apart = p.turned / 2u;                                                                                 \
    vec2 made;                                                                                                        \
    for (uint i = 0u; i < 2u; ++i) {                                                                                  \
      const uint at = column + i;                                                                                     \
      made[i] = pm_load(x, from + at);                                                                                \
      if (at >= p.turned) continue;                                                                                   \
      const bool is_first = INTERLEAVED != 0 ? i == 0u : at < apart;                                                  \
      const uint pair = INTERLEAVED != 0 ? at / 2u : is_first ? at : at - apart, step = INTERLEAVED != 0 ? 1u : apart; \
      const float other = pm_load(x, from + (is_first ? at + step : at - step));                                      \
      const float cosine = pm_load(cosines, p.cosines_offset + table + pair);                                         \
      const float sine = pm_load(sines, p.sines_offset + table + pair);                                               \
      made[i] = cosine * made[i] + (is_first ? -sine : sine) * other;                                                 \
    }                                                                                                                 \
    return made;                                                                                                      \
  }
TURNED_PAIR(turned_query, q)
TURNED_PAIR(turned_key, k)

void main() {
  const uint id = grid_invocation();
  if (id >= p.pairs) return;
  const uint column = id % (p.size / 2u) * 2u, line = id / (p.size / 2u), all = p.heads + 2u * p.groups;
  uint head = line % all;
  const uint row = line / all % p.rows, image = line / all / p.rows;
  const ivec2 place = places[p.places_offset + image * p.rows + row];
  const uint table = place.y == 0 && uint(place.x) < p.table_rows ? uint(place.x) * (p.turned / 2u) : 0u;
  if (head < p.heads) {
    const vec2 made = turned_query(p.q_offset + image * p.q_batch + head * p.q_head + row * p.q_row, column, table);
    pm_store2_any(y, p.y_offset + ((image * p.heads + head) * p.rows + row) * p.size + column, made.x, made.y);
    return;
  }
  const int to = row_of_cache(firsts[p.firsts_offset + image], row);
  if (to < 0 || to >= int(p.room)) return;
  head -= p.heads;
  const bool is_key = head < p.groups;
  if (!is_key) head -= p.groups;
  const uint at = ((image * p.groups + head) * p.room + uint(to)) * p.size + column;
  if (is_key) {
    const vec2 made = turned_key(p.k_offset + image * p.k_batch + head * p.k_head + row * p.k_row, column, table);
    pm_store2_any(keys, p.keys_offset + at, made.x, made.y);
  } else {
    const uint from = p.v_offset + image * p.v_batch + head * p.v_head + row * p.v_row + column;
    const vec2 made = vec2(pm_load(v, from), pm_load(v, from + 1u));
    pm_store2_any(values, p.values_offset + at, made.x, made.y);
  }
}
