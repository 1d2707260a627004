// RoPE of queries and keys (see rotary_embedding.comp), and update of a KV cache, starting at row write_indices[batch item].
//
// q, k, v: [batch, heads, rows, size], any strides; only the last axis must be contiguous. keys, values: [batch, kv_heads, capacity, size];
// rows past the capacity are dropped. y: the rotated queries, dense. position_ids: int64 [batch, rows]. An invocation writes two
// neighbouring elements. For all devices. Selected in cpp/operators/attention/rotary_kv_cache.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/cache_row.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(push_constant) uniform parameter {
  uint pairs, heads, kv_heads, rows, size, rotary_dim, table_rows, capacity;
  uint q_batch, q_head, q_row;
  uint k_batch, k_head, k_row;
  uint v_batch, v_head, v_row;
  uint q_offset, k_offset, v_offset, cosines_offset, sines_offset, position_ids_offset, write_indices_offset, y_offset, keys_offset, values_offset;
} p;
layout(binding = 0) readonly buffer Q { sfp q[]; };
layout(binding = 1) readonly buffer K { sfp k[]; };
layout(binding = 2) readonly buffer V { sfp v[]; };
layout(binding = 3) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 4) readonly buffer Sines { sfp sines[]; };
layout(binding = 5) readonly buffer PositionIds { ivec2 position_ids[]; };
layout(binding = 6) readonly buffer WriteIndices { ivec2 write_indices[]; };
layout(binding = 7) buffer Y { sfp y[]; };
layout(binding = 8) buffer Keys { sfp keys[]; };
layout(binding = 9) buffer Values { sfp values[]; };

// Returns elements `column` and `column` + 1 of the row of x that starts at `from`, rotated by row `table` of the cos/sin tables.
#define DEFINE_ROTATED_PAIR(name, x)                                                                                          \
  vec2 name(uint from, uint column, uint table) {                                                                     \
    const uint half_dim = p.rotary_dim / 2u;                                                                                 \
    vec2 rotated;                                                                                                        \
    for (uint i = 0u; i < 2u; ++i) {                                                                                  \
      const uint at = column + i;                                                                                     \
      rotated[i] = pm_load(x, from + at);                                                                                \
      if (at >= p.rotary_dim) continue;                                                                                   \
      const bool is_first = INTERLEAVED != 0 ? i == 0u : at < half_dim;                                                  \
      const uint pair = INTERLEAVED != 0 ? at / 2u : is_first ? at : at - half_dim, step = INTERLEAVED != 0 ? 1u : half_dim; \
      const float other = pm_load(x, from + (is_first ? at + step : at - step));                                      \
      const float cosine = pm_load(cosines, p.cosines_offset + table + pair);                                         \
      const float sine = pm_load(sines, p.sines_offset + table + pair);                                               \
      rotated[i] = cosine * rotated[i] + (is_first ? -sine : sine) * other;                                                 \
    }                                                                                                                 \
    return rotated;                                                                                                      \
  }
DEFINE_ROTATED_PAIR(rotated_query, q)
DEFINE_ROTATED_PAIR(rotated_key, k)

void main() {
  const uint id = grid_invocation();
  if (id >= p.pairs) return;
  const uint column = id % (p.size / 2u) * 2u, head_row = id / (p.size / 2u), all_heads = p.heads + 2u * p.kv_heads;
  uint head = head_row % all_heads;
  const uint row = head_row / all_heads % p.rows, batch = head_row / all_heads / p.rows;
  const ivec2 position = position_ids[p.position_ids_offset + batch * p.rows + row];
  const uint table = position.y == 0 && uint(position.x) < p.table_rows ? uint(position.x) * (p.rotary_dim / 2u) : 0u;
  if (head < p.heads) {
    const vec2 rotated = rotated_query(p.q_offset + batch * p.q_batch + head * p.q_head + row * p.q_row, column, table);
    pm_store2_any(y, p.y_offset + ((batch * p.heads + head) * p.rows + row) * p.size + column, rotated.x, rotated.y);
    return;
  }
  const int to = cache_row_index(write_indices[p.write_indices_offset + batch], row);
  if (to < 0 || to >= int(p.capacity)) return;
  head -= p.heads;
  const bool is_key = head < p.kv_heads;
  if (!is_key) head -= p.kv_heads;
  const uint at = ((batch * p.kv_heads + head) * p.capacity + uint(to)) * p.size + column;
  if (is_key) {
    const vec2 rotated = rotated_key(p.k_offset + batch * p.k_batch + head * p.k_head + row * p.k_row, column, table);
    pm_store2_any(keys, p.keys_offset + at, rotated.x, rotated.y);
  } else {
    const uint from = p.v_offset + batch * p.v_batch + head * p.v_head + row * p.v_row + column;
    const vec2 rotated = vec2(pm_load(v, from), pm_load(v, from + 1u));
    pm_store2_any(values, p.values_offset + at, rotated.x, rotated.y);
  }
}
