// RoPE of queries and keys, and update of an int8 KV cache: like rotary_kv_cache.comp, but K and V are quantised per row.
//
// q, k, v: [batch, heads, rows, size], any strides except for the last axis. keys, values: int8 [batch, groups, capacity, size];
// key_scales, value_scales: [batch, groups, capacity]. y: the rotated queries. TURNS: apply RoPE.
// A row's largest magnitude becomes 127. A row with a value that is not finite gets NaN as its scale: with an infinite scale, a score may
// become -infinity, and attention would ignore the row.
// Workgroup = one row of one head, TEAM invocations with HELD vec4s each: load and rotate; reduce the maximum; store levels and scale.
//
// For all devices. Selected in cpp/operators/attention/quantized_kv_cache.cpp.
#version 450
#if LANES || SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/cache_row.glsl"
layout(local_size_x = TEAM) in;
#include "include/thread_group.glsl"
layout(push_constant) uniform parameter {
  uint lines, heads, groups, rows, size, turned, table_rows, room;
  uint q_batch, q_head, q_row;
  uint k_batch, k_head, k_row;
  uint v_batch, v_head, v_row;
  uint q_offset, k_offset, v_offset, cosines_offset, sines_offset, places_offset, firsts_offset, y_offset, keys_offset, values_offset;
  uint key_scales_offset, value_scales_offset;
} p;
layout(binding = 0) readonly buffer Q { sfp q[]; };
layout(binding = 1) readonly buffer K { sfp k[]; };
layout(binding = 2) readonly buffer V { sfp v[]; };
layout(binding = 3) readonly buffer Firsts { ivec2 firsts[]; };
layout(binding = 4) buffer Y { sfp y[]; };
layout(binding = 5) writeonly buffer Keys { uint keys[]; };
layout(binding = 6) writeonly buffer Values { uint values[]; };
layout(binding = 7) buffer KeyScales { sfp key_scales[]; };
layout(binding = 8) buffer ValueScales { sfp value_scales[]; };
#if TURNS
layout(binding = 9) readonly buffer Cosines { sfp cosines[]; };
layout(binding = 10) readonly buffer Sines { sfp sines[]; };
layout(binding = 11) readonly buffer Places { ivec2 places[]; };
#endif

#if !LANES
shared uint meeting[TEAM + 16u];
#endif
PM_GATHER(largest_of_team, uint, meeting, max)

#define FOR_HELD(h) [[unroll]] for (uint h = 0u; h < HELD; ++h)
#define COLUMN(h) ((TEAM_MEMBER + (h) * TEAM) * 4u)

// Returns element `at` of the row of x that starts at `from`, rotated by row `table` of the cos/sin tables.
#if TURNS
#define TURNED(name, x)                                                                                             \
  float name(uint from, uint at, uint table) {                                                                      \
    const float own = pm_load(x, from + at);                                                                        \
    if (at >= p.turned) return own;                                                                                 \
    const uint apart = p.turned / 2u;                                                                               \
    const bool is_first = INTERLEAVED != 0 ? (at & 1u) == 0u : at < apart;                                          \
    const uint pair = INTERLEAVED != 0 ? at / 2u : is_first ? at : at - apart, step = INTERLEAVED != 0 ? 1u : apart; \
    const float other = pm_load(x, from + (is_first ? at + step : at - step));                                      \
    const float cosine = pm_load(cosines, p.cosines_offset + table + pair);                                         \
    const float sine = pm_load(sines, p.sines_offset + table + pair);                                               \
    return cosine * own + (is_first ? -sine : sine) * other;                                                        \
  }
#else
#define TURNED(name, x) \
  float name(uint from, uint at, uint table) { return pm_load(x, from + at); }
#endif
TURNED(turned_query, q)
TURNED(turned_key, k)

// Rounds a finite number to the storage type of the scales. Subnormal fp16 are coarse, so they are rounded up: with a smaller scale the
// largest elements would exceed level 127. Rounds by bit operations, since NVIDIA's driver optimises unpackHalf2x16(packHalf2x16(x)) to x.
float as_stored(float number) {
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

uint packed_four(vec4 four, float scale) {
  const vec4 levels = scale > 0.0 ? roundEven(four / scale) : vec4(0.0);
  return pm_pack_i8(ivec4(clamp(levels, vec4(-127.0), vec4(127.0))));
}

void main() {
  const uint line = grid_group(), all = p.heads + 2u * p.groups;
  if (line >= p.lines) return;
  uint head = line % all;
  const uint row = line / all % p.rows, image = line / all / p.rows;
  uint table = 0u;
#if TURNS
  const ivec2 place = places[p.places_offset + image * p.rows + row];
  if (place.y == 0 && uint(place.x) < p.table_rows) table = uint(place.x) * (p.turned / 2u);
#endif
  if (head < p.heads) {
    const uint from = p.q_offset + image * p.q_batch + head * p.q_head + row * p.q_row;
    const uint to = p.y_offset + ((image * p.heads + head) * p.rows + row) * p.size;
    FOR_HELD(h) {
      const uint column = COLUMN(h);
      if (column >= p.size) continue;
      vec4 four;
      for (uint i = 0u; i < 4u; ++i) four[i] = turned_query(from, column + i, table);
      pm_store2_any(y, to + column, four.x, four.y);
      pm_store2_any(y, to + column + 2u, four.z, four.w);
    }
    return;
  }
  const int to = row_of_cache(firsts[p.firsts_offset + image], row);
  if (to < 0 || to >= int(p.room)) return;
  head -= p.heads;
  const bool is_key = head < p.groups;
  if (!is_key) head -= p.groups;
  const uint from_k = p.k_offset + image * p.k_batch + head * p.k_head + row * p.k_row;
  const uint from_v = p.v_offset + image * p.v_batch + head * p.v_head + row * p.v_row;
  vec4 fours[HELD];
  uint largest = 0u;  // magnitude as float bits, which order like the values; NaN is largest
  FOR_HELD(h) {
    const uint column = COLUMN(h);
    fours[h] = vec4(0.0);
    if (column < p.size)
      for (uint i = 0u; i < 4u; ++i) fours[h][i] = is_key ? turned_key(from_k, column + i, table) : pm_load(v, from_v + column + i);
    const uvec4 words = floatBitsToUint(fours[h]) & 0x7fffffffu;
    largest = max(largest, max(max(words.x, words.y), max(words.z, words.w)));
  }
  const uint of_row = largest_of_team(largest);
  const float scale = of_row < 0x7f800000u ? as_stored(uintBitsToFloat(of_row) / 127.0) : uintBitsToFloat(0x7fc00000u);
  const uint cell = (image * p.groups + head) * p.room + uint(to);
  FOR_HELD(h) {
    const uint column = COLUMN(h), at = cell * p.size + column;
    if (column >= p.size) continue;
    if (is_key) keys[(p.keys_offset + at) >> 2] = packed_four(fours[h], scale);
    else values[(p.values_offset + at) >> 2] = packed_four(fours[h], scale);
  }
  if (TEAM_MEMBER != 0u) return;
  if (is_key) pm_store(key_scales, p.key_scales_offset + cell, scale);
  else pm_store(value_scales, p.value_scales_offset + cell, scale);
}
