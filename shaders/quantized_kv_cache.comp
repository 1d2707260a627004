// RoPE of queries and keys, and update of an int8 KV cache: like rotary_kv_cache.comp, but K and V are quantised per row.
//
// q, k, v: [batch, heads, rows, size], any strides; only the last axis must be contiguous. keys, values: int8 [batch, kv_heads, capacity,
// size]; key_scales, value_scales: [batch, kv_heads, capacity]. y: the rotated queries. APPLY_ROPE: apply RoPE.
// A row's largest magnitude becomes 127. A row with a value that is not finite gets NaN as its scale: with an infinite scale, a score may
// become -infinity, and attention would ignore the row.
// Workgroup = one row of one head, GROUP_THREADS invocations with ITEMS_PER_THREAD vec4s each: load and rotate; reduce the maximum; store
// levels and scale.
//
// For all devices. Selected in cpp/operators/attention/quantized_kv_cache.cpp.
#version 450
#if CPU_VARIANT || SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/cache_row.glsl"
layout(local_size_x = GROUP_THREADS) in;
#include "include/thread_group.glsl"
layout(push_constant) uniform parameter {
  uint head_rows, heads, kv_heads, rows, size, rotary_dim, table_rows, capacity;
  uint q_batch, q_head, q_row;
  uint k_batch, k_head, k_row;
  uint v_batch, v_head, v_row;
  uint q_offset, k_offset, v_offset, cosines_offset, sines_offset, position_ids_offset, write_indices_offset, y_offset, keys_offset, values_offset;
  uint key_scales_offset, value_scales_offset;
} p;
layout(binding = 0) readonly buffer Q { sfp q[]; };
layout(binding = 1) readonly buffer K { sfp k[]; };
layout(binding = 2) readonly buffer V { sfp v[]; };
layout(binding = 3) readonly buffer WriteIndices { ivec2 write_indices[]; };
layout(binding = 4) buffer Y { sfp y[]; };
layout(binding = 5) writeonly buffer Keys { uint keys[]; };
layout(binding = 6) writeonly buffer Values { uint values[]; };
layout(binding = 7) buffer KeyScales { sfp key_scales[]; };
layout(binding = 8) buffer ValueScales { sfp value_scales[]; };
#if APPLY_ROPE
layout(binding = 9) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 10) readonly buffer Sines { sfp sines[]; };
layout(binding = 11) readonly buffer PositionIds { ivec2 position_ids[]; };
#endif

#if !CPU_VARIANT
shared uint reduce_buffer[GROUP_THREADS + 16u];
#endif
PM_DEFINE_GROUP_REDUCE(reduce_max_magnitude, uint, reduce_buffer, max)

#define FOR_THREAD_ITEMS(h) [[unroll]] for (uint h = 0u; h < ITEMS_PER_THREAD; ++h)
#define COLUMN(h) ((THREAD_IN_GROUP + (h) * GROUP_THREADS) * 4u)

// Returns element `at` of the row of x that starts at `from`, rotated by row `table` of the cos/sin tables.
#if APPLY_ROPE
#define DEFINE_ROTATED(name, x)                                                                                             \
  float name(uint from, uint at, uint table) {                                                                      \
    const float value = pm_load(x, from + at);                                                                        \
    if (at >= p.rotary_dim) return value;                                                                                 \
    const uint half_dim = p.rotary_dim / 2u;                                                                               \
    const bool is_first = INTERLEAVED != 0 ? (at & 1u) == 0u : at < half_dim;                                          \
    const uint pair = INTERLEAVED != 0 ? at / 2u : is_first ? at : at - half_dim, step = INTERLEAVED != 0 ? 1u : half_dim; \
    const float other = pm_load(x, from + (is_first ? at + step : at - step));                                      \
    const float cosine = pm_load(cosines, p.cosines_offset + table + pair);                                         \
    const float sine = pm_load(sines, p.sines_offset + table + pair);                                               \
    return cosine * value + (is_first ? -sine : sine) * other;                                                        \
  }
#else
#define DEFINE_ROTATED(name, x) \
  float name(uint from, uint at, uint table) { return pm_load(x, from + at); }
#endif
DEFINE_ROTATED(rotated_query, q)
DEFINE_ROTATED(rotated_key, k)

// Rounds a finite number to the storage type of the scales. Subnormal fp16 are coarse, so they are rounded up: with a smaller scale the
// largest elements would exceed level 127. Rounds by bit operations, since NVIDIA's driver optimises unpackHalf2x16(packHalf2x16(x)) to x.
float round_to_storage(float number) {
  const uint word = floatBitsToUint(number);
#if NCNN_fp16_packed || NCNN_fp16_storage
  if (number < 6.103515625e-5) return ceil(number * 16777216.0) / 16777216.0;
  return uintBitsToFloat(word + 0xfffu + (word >> 13 & 1u) & 0xffffe000u);
#elif NCNN_bf16_packed || NCNN_bf16_storage
  return uintBitsToFloat(word + 0x7fffu + (word >> 16 & 1u) & 0xffff0000u);
#else
  return number;
#endif
}

uint pack_int8x4(vec4 v4, float scale) {
  const vec4 levels = scale > 0.0 ? roundEven(v4 / scale) : vec4(0.0);
  return pm_pack_i8(ivec4(clamp(levels, vec4(-127.0), vec4(127.0))));
}

void main() {
  const uint head_row = grid_group(), all_heads = p.heads + 2u * p.kv_heads;
  if (head_row >= p.head_rows) return;
  uint head = head_row % all_heads;
  const uint row = head_row / all_heads % p.rows, batch = head_row / all_heads / p.rows;
  uint table = 0u;
#if APPLY_ROPE
  const ivec2 position = position_ids[p.position_ids_offset + batch * p.rows + row];
  if (position.y == 0 && uint(position.x) < p.table_rows) table = uint(position.x) * (p.rotary_dim / 2u);
#endif
  if (head < p.heads) {
    const uint from = p.q_offset + batch * p.q_batch + head * p.q_head + row * p.q_row;
    const uint to = p.y_offset + ((batch * p.heads + head) * p.rows + row) * p.size;
    FOR_THREAD_ITEMS(h) {
      const uint column = COLUMN(h);
      if (column >= p.size) continue;
      vec4 v4;
      for (uint i = 0u; i < 4u; ++i) v4[i] = rotated_query(from, column + i, table);
      pm_store2_any(y, to + column, v4.x, v4.y);
      pm_store2_any(y, to + column + 2u, v4.z, v4.w);
    }
    return;
  }
  const int to = cache_row_index(write_indices[p.write_indices_offset + batch], row);
  if (to < 0 || to >= int(p.capacity)) return;
  head -= p.heads;
  const bool is_key = head < p.kv_heads;
  if (!is_key) head -= p.kv_heads;
  const uint from_k = p.k_offset + batch * p.k_batch + head * p.k_head + row * p.k_row;
  const uint from_v = p.v_offset + batch * p.v_batch + head * p.v_head + row * p.v_row;
  vec4 row_values[ITEMS_PER_THREAD];
  uint max_magnitude = 0u;  // magnitude as float bits, which order like the values; NaN is largest
  FOR_THREAD_ITEMS(h) {
    const uint column = COLUMN(h);
    row_values[h] = vec4(0.0);
    if (column < p.size)
      for (uint i = 0u; i < 4u; ++i) row_values[h][i] = is_key ? rotated_key(from_k, column + i, table) : pm_load(v, from_v + column + i);
    const uvec4 words = floatBitsToUint(row_values[h]) & 0x7fffffffu;
    max_magnitude = max(max_magnitude, max(max(words.x, words.y), max(words.z, words.w)));
  }
  const uint row_max = reduce_max_magnitude(max_magnitude);
  const float scale = row_max < 0x7f800000u ? round_to_storage(uintBitsToFloat(row_max) / 127.0) : uintBitsToFloat(0x7fc00000u);
  const uint cache_row = (batch * p.kv_heads + head) * p.capacity + uint(to);
  FOR_THREAD_ITEMS(h) {
    const uint column = COLUMN(h), at = cache_row * p.size + column;
    if (column >= p.size) continue;
    if (is_key) keys[(p.keys_offset + at) >> 2] = pack_int8x4(row_values[h], scale);
    else values[(p.values_offset + at) >> 2] = pack_int8x4(row_values[h], scale);
  }
  if (THREAD_IN_GROUP != 0u) return;
  if (is_key) pm_store(key_scales, p.key_scales_offset + cache_row, scale);
  else pm_store(value_scales, p.value_scales_offset + cache_row, scale);
}
