// Decode attention on cooperative matrices in the layout of include/mma.glsl, for up to 16 queries that share K and V (grouped
// queries included). It is memory-bound, so K and V bypass shared memory. See include/attention.glsl for buffers.
//
// Workgroup (x, y, z) = (ROWS queries, K/V head of a batch item, split of the keys in use). Each subgroup processes KEY_BLOCKS * 16 keys
// per iteration; the subgroups of a workgroup process different keys. Loads of 16 bytes need no reordering: the order of a sum over K does
// not matter, so each invocation uses its contiguous elements as its fragment. Queries are the A operand and keys the B operand;
// probabilities are then the B operand of the transposed product V^T P^T.
//   load K, V; load Q fragments (QUERIES_SHARED: kept in shared memory, for long heads)
//   for each tile of keys:
//     S = Q K^T; prefetch the next K; mask; online softmax
//     acc^T = acc^T * factor + V^T P^T; prefetch the next V
//   reduce over subgroups; store, or write the partial result; the last workgroup of a row merges them (MERGES_SPLITS)
// partials (MERGES_SPLITS): vec4 [row tile][split][ROWS][V_SIZE / 4 + 1]; the last vec4 has the score maximum and the sum. INT8: K and V
// are bytes with one scale per row of a head. A packed pair consists of every other byte of a word, and the queries are reordered to match;
// K scales multiply the scores; V scales multiply the values.
//
// Requires cooperative matrices in that layout (has_or_emulates_mma) and 16-byte-aligned heads of 8 n elements, up to 256 (128 for more
// than 8 queries). Selected in attention.cpp (choose_decode_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define VEC8 1
#define VEC4_PARTIALS 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 256u;
layout(constant_id = 3) const uint ROWS = 4u;             // query rows, including grouped heads: at most 16
layout(constant_id = 4) const uint KEY_BLOCKS = 1u;       // blocks of 16 keys per subgroup
#include "include/mma.glsl"

const uint SUBGROUPS = INVOCATIONS / kLanes, KEYS_PER_SUBGROUP = KEY_BLOCKS * 16u;
const uint K_LOADS = (SIZE + 31u) / 32u, V_LOADS = (V_SIZE + 63u) / 64u;  // vec8 loads; 4 lanes per K row, 8 per V row
const uint SCORE_COMPONENTS = ROWS > 8u ? 8u : 4u;  // number of components of a score fragment that belong to queries
const uint ROW_GROUPS = SCORE_COMPONENTS / 4u;  // number of groups of 8 rows
const uint OUTPUT_TILES = V_LOADS * 4u;  // number of output tiles of 16 columns
// vec4s per row; vec4s per partial result, which also contains the maximum and the sum
const uint VEC4_PER_ROW = (V_SIZE + 3u) / 4u, PARTIAL_VEC4 = VEC4_PER_ROW + 1u;
// vec4s of all rows; vec4s of the partial results of all subgroups
const uint OUTPUT_VEC4 = ROWS * VEC4_PER_ROW, SHARED_PARTIALS = SUBGROUPS * OUTPUT_VEC4;
// number of invocations that together merge the splits of one output vec4
const uint MERGE_THREADS = INVOCATIONS > OUTPUT_VEC4 ? INVOCATIONS / OUTPUT_VEC4 : 1u;
// A subgroup covers whole rows, so it merges the splits of its rows without waiting for other subgroups.
const bool SUBGROUP_MERGES = kLanes % VEC4_PER_ROW == 0u;
const uint LOADS_IN_FLIGHT = 16u;  // number of split-K partials loaded at once
const float kHeadroom = 4096.0;    // scales the probabilities, so that small ones are not subnormal in fp16
const float kLog2E = 1.44269504;   // log2(e)

shared vec4 partial_acc[SHARED_PARTIALS > INVOCATIONS ? SHARED_PARTIALS : INVOCATIONS];
shared vec2 partial_stats[INVOCATIONS];
shared bool is_last;

const uint K_REGISTERS = KEY_BLOCKS * K_LOADS * 2u, V_REGISTERS = KEY_BLOCKS * V_LOADS * 4u;  // number of K and V vec8s of one iteration
K_TYPE k_regs[K_REGISTERS], v_regs[V_REGISTERS];
#if INT8
// Each lane holds one K scale and one V scale: lane i has the scales of key i of the (at most two) blocks.
float k_lane_scale, v_lane_scale;
#endif
float scores[KEY_BLOCKS * kComponents];  // scores, then probabilities
vec2 row_max, sum;                       // running maximum and sum of this lane's two rows
#if QUERIES_SHARED
shared uvec4 shared_queries[K_LOADS * ROW_GROUPS * kLanes];
#else
MATRIX_A(queries[K_LOADS * 2u]);
#endif
ACCUMULATOR_ARRAY(sums, OUTPUT_TILES);

#if EMULATED
#define FOR(i, count) for (uint i = 0u; i < (count); ++i)
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#endif

// exp(score - shift); see attention_mma.comp.
#if MASKED
#define EXP_SCORE(score, shift, exp_scale) exp((score) - (shift))
#else
#define EXP_SCORE(score, shift, exp_scale) exp2(fma(score, exp_scale, -(shift) * (exp_scale)))
#endif

// Returns whether the workgroup has a query row r: the last workgroup may have fewer than ROWS rows.
bool has_row(uint r) { return r < ROWS && grid_group().x * ROWS + r < p.group * p.rows; }

// Returns (query head, query) of row r of the workgroup.
uvec2 query_of_row(uint r, uint kv_head) {
  const uint row = min(grid_group().x * ROWS + min(r, ROWS - 1u), p.group * p.rows - 1u);
  return uvec2(kv_head * p.group + row / p.rows, row % p.rows);
}

uvec4 select_or_zero(uvec4 words, bool inside) { return inside ? words : uvec4(0u); }

#if INT8
// Returns the scales of the four keys of a block in this lane's score columns.
vec4 block_scales(float lane_scale, uint block) {
  const uint first = block * 16u + LANE % 4u * 2u;
  return vec4(SHUFFLE(lane_scale, first), SHUFFLE(lane_scale, first + 1u), SHUFFLE(lane_scale, first + 8u), SHUFFLE(lane_scale, first + 9u));
}

// Converts the signed bytes 0 and 2 of a word to fp16. XOR with 0x80 adds 128 to a signed byte; 0x6400 | u is the fp16 value 1024 + u.
Operand2 unpack_int8_pair(uint word) { return UNPACK_OPERAND2((word & 0x00ff00ffu) ^ 0x64806480u) - Operand2(1152.0); }

// Reorders pairs of adjacent elements to pairs of every other element, to match unpack_int8_pair().
uvec4 reorder_pairs(uvec4 words) {
  const uvec2 low = words.xz & 0xffffu | words.yw << 16, high = words.xz >> 16 | words.yw & 0xffff0000u;
  return uvec4(low.x, high.x, low.y, high.y);
}
#else
#define reorder_pairs(words) (words)
#endif

// Loads the queries as A fragments; rows past the last are zero.
void load_queries(uint batch, uint kv_head) {
  const uint r = LANE / 4u;
  const uvec2 query_a = query_of_row(r, kv_head), query_b = query_of_row(r + 8u, kv_head);
  const uint at_a = q_row_offset(batch, query_a.x, query_a.y) / 8u, at_b = q_row_offset(batch, query_b.x, query_b.y) / 8u;
  FOR(step, K_LOADS) {
    const uint vec8_index = step * 4u + LANE % 4u, inside = min(vec8_index, SIZE / 8u - 1u);
    const uvec4 a = reorder_pairs(select_or_zero(q[at_a + inside], has_row(r) && vec8_index < SIZE / 8u));
    uvec4 b = uvec4(0u);
    if (ROWS > 8u) b = reorder_pairs(select_or_zero(q[at_b + inside], has_row(r + 8u) && vec8_index < SIZE / 8u));
#if QUERIES_SHARED
    if (SUBGROUP_ID == 0u) shared_queries[step * ROW_GROUPS * kLanes + LANE] = a;
    if (SUBGROUP_ID == 0u && ROWS > 8u) shared_queries[(step * ROW_GROUPS + ROW_GROUPS - 1u) * kLanes + LANE] = b;
#else
    SET_FRAGMENT(queries[step * 2u], UNPACK_OPERAND2(a.x), UNPACK_OPERAND2(a.y), UNPACK_OPERAND2(b.x), UNPACK_OPERAND2(b.y))
    SET_FRAGMENT(queries[step * 2u + 1u], UNPACK_OPERAND2(a.z), UNPACK_OPERAND2(a.w), UNPACK_OPERAND2(b.z), UNPACK_OPERAND2(b.w))
#endif
  }
#if QUERIES_SHARED
  barrier();
#endif
}

// Branch-free loads: keys past the end repeat the last key, elements past the head repeat its last vec8.
void load_keys(uint at, int key, int end) {
  FOR(i, KEY_BLOCKS * 2u) {
    const uint row = uint(min(key + int(i * 8u + LANE / 4u), end - 1));
    FOR(step, K_LOADS) {
      const uint vec8_index = step * 4u + LANE % 4u;
      k_regs[(i / 2u * K_LOADS + step) * 2u + i % 2u] = k[(at + row * p.k_row) / 8u + min(vec8_index, SIZE / 8u - 1u)];
    }
  }
#if INT8
  k_lane_scale = load_k_scale(at + uint(min(key + int(LANE), end - 1)) * p.k_row);
#endif
}

void load_values(uint at, int key, int end) {
  FOR(i, KEY_BLOCKS * 4u) {
    const uint row = uint(min(key + int(i / 4u * 16u + LANE % 4u * 2u + i % 2u + i % 4u / 2u * 8u), end - 1));
    FOR(step, V_LOADS) {
      const uint vec8_index = min(step * 8u + LANE / 4u, V_SIZE / 8u - 1u);
      v_regs[(i / 4u * V_LOADS + step) * 4u + i % 4u] = v[(at + row * p.v_row) / 8u + vec8_index];
    }
  }
#if INT8
  v_lane_scale = load_v_scale(at + uint(min(key + int(LANE), end - 1)) * p.v_row);
#endif
}

// S = Q K^T for a block of 16 keys.
void multiply_keys(uint block) {
  ACCUMULATOR(products);
  FOR(step, K_LOADS) {
    const uint at = (block * K_LOADS + step) * 2u;
    MATRIX_B(low);
    MATRIX_B(high);
#if INT8
    const uvec2 a = k_regs[at], b = k_regs[at + 1u];
    SET_FRAGMENT(low, unpack_int8_pair(a.x), unpack_int8_pair(a.x >> 8), unpack_int8_pair(b.x), unpack_int8_pair(b.x >> 8))
    SET_FRAGMENT(high, unpack_int8_pair(a.y), unpack_int8_pair(a.y >> 8), unpack_int8_pair(b.y), unpack_int8_pair(b.y >> 8))
#else
    const bool inside = SIZE % 32u == 0u || step * 4u + LANE % 4u < SIZE / 8u;
    const uvec4 a = select_or_zero(k_regs[at], inside), b = select_or_zero(k_regs[at + 1u], inside);
    SET_FRAGMENT(low, UNPACK_OPERAND2(a.x), UNPACK_OPERAND2(a.y), UNPACK_OPERAND2(b.x), UNPACK_OPERAND2(b.y))
    SET_FRAGMENT(high, UNPACK_OPERAND2(a.z), UNPACK_OPERAND2(a.w), UNPACK_OPERAND2(b.z), UNPACK_OPERAND2(b.w))
#endif
#if QUERIES_SHARED
    const uvec4 row_a = shared_queries[step * ROW_GROUPS * kLanes + LANE];
    uvec4 row_b = uvec4(0u);
    if (ROWS > 8u) row_b = shared_queries[(step * ROW_GROUPS + ROW_GROUPS - 1u) * kLanes + LANE];
    MATRIX_A(left);
    SET_FRAGMENT(left, UNPACK_OPERAND2(row_a.x), UNPACK_OPERAND2(row_a.y), UNPACK_OPERAND2(row_b.x), UNPACK_OPERAND2(row_b.y))
    MMA(left, low, products);
    SET_FRAGMENT(left, UNPACK_OPERAND2(row_a.z), UNPACK_OPERAND2(row_a.w), UNPACK_OPERAND2(row_b.z), UNPACK_OPERAND2(row_b.w))
    MMA(left, high, products);
#else
    MMA(queries[step * 2u], low, products);
    MMA(queries[step * 2u + 1u], high, products);
#endif
  }
#if INT8
  const vec4 scales = block_scales(k_lane_scale, block);
  FOR(i, SCORE_COMPONENTS) scores[block * kComponents + i] = products[i] * scales[i % 4u];
#else
  FOR(i, SCORE_COMPONENTS) scores[block * kComponents + i] = products[i];
#endif
}

#if INT8
#define VALUE_PAIR(i) \
  (unpack_int8_pair(v_regs[first + (i)][word / 2u] >> word % 2u * 8u) * Operand2(TO_OPERAND(scales[i])))
#else
#define VALUE_PAIR(i) UNPACK_OPERAND2(v_regs[first + (i)][word])
#endif

// acc^T += V^T P^T for a block.
void multiply_values(uint block) {
  MATRIX_B(probabilities);
  FOR(i, kComponents) probabilities[i] = i < SCORE_COMPONENTS ? TO_OPERAND(scores[block * kComponents + i]) : TO_OPERAND(0.0);
#if INT8
  const vec4 scales = block_scales(v_lane_scale, block);
#endif
  FOR(step, V_LOADS) FOR(word, 4u) {
    const uint first = (block * V_LOADS + step) * 4u, tile = step * 4u + word;
    const Operand2 a = VALUE_PAIR(0u), b = VALUE_PAIR(1u), c = VALUE_PAIR(2u), d = VALUE_PAIR(3u);
    MATRIX_A(values);
    SET_FRAGMENT(values, Operand2(a.x, b.x), Operand2(c.x, d.x), Operand2(a.y, b.y), Operand2(c.y, d.y))
    MMA(values, probabilities, sums[tile]);
  }
}

// Row reductions over the four lanes that share a row.
vec2 reduce_row_max(vec2 v) {
  v = max(v, vec2(SHUFFLE_XOR(v.x, 1u), SHUFFLE_XOR(v.y, 1u)));
  return max(v, vec2(SHUFFLE_XOR(v.x, 2u), SHUFFLE_XOR(v.y, 2u)));
}

vec2 reduce_row_sum(vec2 v) {
  v += vec2(SHUFFLE_XOR(v.x, 1u), SHUFFLE_XOR(v.y, 1u));
  return v + vec2(SHUFFLE_XOR(v.x, 2u), SHUFFLE_XOR(v.y, 2u));
}

// Four outputs, unnormalised, with the maximum and the sum of exponentials.
struct PartialVec4 {
  vec4 sums;
  float row_max, sum;
};

PartialVec4 empty_partial() { return PartialVec4(vec4(0.0), minus_infinity, 0.0); }

// Merges `count` partial results in shared memory, which start at `first` with stride `stride`; their maxima and sums start at
// `first_stats`.
PartialVec4 merge_shared_partials(uint first, uint first_stats, uint stride, uint stats_stride, uint count) {
  PartialVec4 merged_result = empty_partial();
  FOR(i, count) merged_result.row_max = max(merged_result.row_max, partial_stats[first_stats + i * stats_stride].x);
  FOR(i, count) {
    const vec2 stats = partial_stats[first_stats + i * stats_stride];
    const float factor = exp(stats.x - softmax_shift(merged_result.row_max));
    merged_result.sum += stats.y * factor;
    merged_result.sums += partial_acc[first + i * stride] * factor;
  }
  return merged_result;
}

void store_merged(uint item, uint batch, uint kv_head, PartialVec4 merged_result) {
  if (!has_row(item / VEC4_PER_ROW)) return;
  const uvec2 query = query_of_row(item / VEC4_PER_ROW, kv_head);
  store_output(p.y_offset + batch * p.y_batch + query.x * p.y_head + query.y * p.y_row, item % VEC4_PER_ROW * 4u, merged_result.sums, merged_result.sum);
}

#if MERGES_SPLITS
// Index of the workgroup's row tile.
uint row_tile_index() { return grid_group().y * grid_size().x + grid_group().x; }

uint partial_offset(uint split) { return (row_tile_index() * grid_size().z + split) * ROWS * PARTIAL_VEC4; }

// Merges the splits first, first + step, ... (below `count`) of an item. Issues LOADS_IN_FLIGHT loads at a time to hide latency.
PartialVec4 merge_split_partials(uint item, uint first, uint step, uint count) {
  PartialVec4 merged_result = empty_partial();
  for (uint begin = first; begin < count; begin += step * LOADS_IN_FLIGHT) {
    vec4 loaded[LOADS_IN_FLIGHT];
    vec2 stats[LOADS_IN_FLIGHT];
    FOR(i, LOADS_IN_FLIGHT) {
      const uint at = partial_offset(min(begin + i * step, count - 1u)) + item / VEC4_PER_ROW * PARTIAL_VEC4;
      loaded[i] = partials[at + item % VEC4_PER_ROW];
      stats[i] = partials[at + VEC4_PER_ROW].xy;
    }
    const float before = merged_result.row_max;
    FOR(i, LOADS_IN_FLIGHT) {
      if (begin + i * step >= count) stats[i] = vec2(minus_infinity, 0.0);
      merged_result.row_max = max(merged_result.row_max, stats[i].x);
    }
    const float shift = softmax_shift(merged_result.row_max), rescale = exp(before - shift);
    merged_result.sum *= rescale;
    merged_result.sums *= rescale;
    FOR(i, LOADS_IN_FLIGHT) {
      const float factor = exp(stats[i].x - shift);
      merged_result.sum += stats[i].y * factor;
      merged_result.sums += loaded[i] * factor;
    }
  }
  return merged_result;
}

// Like merge_splits(), but merges only the rows of the calling subgroup. With EMULATED, SHUFFLE has a workgroup barrier, so no subgroup may
// leave early.
void merge_splits_by_subgroup(uint batch, uint kv_head, uint count) {
#if EMULATED
  barrier();  // this subgroup's partial result has been written
#else
  if (SUBGROUP_ID * kLanes >= OUTPUT_VEC4) return;
  subgroupBarrier();  // this subgroup's partial result has been written
#endif
  memoryBarrierBuffer();
  const uint counter = row_tile_index() * SUBGROUPS + SUBGROUP_ID;
  uint before = 0u;
  if (LANE == 0u) before = atomicAdd(finished[counter], 1u);
  if (uint(SHUFFLE(float(before), 0u)) + 1u != count) return;
  if (LANE == 0u) atomicExchange(finished[counter], 0u);
  memoryBarrierBuffer();
  for (uint item = gl_LocalInvocationIndex; item < OUTPUT_VEC4; item += INVOCATIONS)
    store_merged(item, batch, kv_head, merge_split_partials(item, 0u, 1u, count));
}

// Merges the splits of the rows if this workgroup is the last to finish.
void merge_splits(uint batch, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // this workgroup's partial result has been written
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders only shared memory
    is_last = atomicAdd(finished[row_tile_index()], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[row_tile_index()], 0u);
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint merge_thread = gl_LocalInvocationIndex / OUTPUT_VEC4;
  for (uint base = 0u; base < OUTPUT_VEC4; base += INVOCATIONS) {
    const uint item = base + gl_LocalInvocationIndex % OUTPUT_VEC4;
    PartialVec4 merged_result = empty_partial();
    if (merge_thread < MERGE_THREADS && item < OUTPUT_VEC4) merged_result = merge_split_partials(item, merge_thread, MERGE_THREADS, count);
    if (MERGE_THREADS > 1u) {
      partial_acc[gl_LocalInvocationIndex] = merged_result.sums;
      partial_stats[gl_LocalInvocationIndex] = vec2(merged_result.row_max, merged_result.sum);
      barrier();
      merged_result = merge_shared_partials(item, item, OUTPUT_VEC4, OUTPUT_VEC4, MERGE_THREADS);
    }
    if (merge_thread == 0u && item < OUTPUT_VEC4) store_merged(item, batch, kv_head, merged_result);
  }
}
#endif

// Stores a subgroup's maximum, sum and accumulators to shared memory.
void store_subgroup_result(vec2 row_max, vec2 sum, float exp_scale) {
  FOR(h, ROWS > 8u ? 2u : 1u) {
    const uint r = LANE / 4u + h * 8u;
    // Multiply the maximum by p.scale, unless the scores are already scaled.
    if (LANE % 4u == 0u && r < ROWS) partial_stats[SUBGROUP_ID * ROWS + r] = vec2(row_max[h] * (exp_scale / kLog2E), sum[h]);
  }
  FOR(c, SCORE_COMPONENTS / 2u) {
    const uint r = LANE % 4u * 2u + (c & 1u) + (c >> 1) * 8u, component = (c & 1u) + (c >> 1) * 2u;
    FOR(step, V_LOADS) FOR(half_index, 2u) {
      const uint vec4_index = (step * 8u + LANE / 4u) * 2u + half_index, tile = step * 4u + half_index * 2u;
      const vec2 low = vec2(sums[tile][component], sums[tile][component + 4u]);
      const vec2 high = vec2(sums[tile + 1u][component], sums[tile + 1u][component + 4u]);
#if INT8
      const vec4 acc4 = vec4(low.x, high.x, low.y, high.y);
#else
      const vec4 acc4 = vec4(low, high);
#endif
      if (r < ROWS && vec4_index < VEC4_PER_ROW) partial_acc[(SUBGROUP_ID * ROWS + r) * VEC4_PER_ROW + vec4_index] = acc4;
    }
  }
}

// Visible key ranges, and the workgroup's split of the keys.
struct KeyRanges {
  uint batch, at_k, at_v;      // at_k, at_v: start of the head's K and V
  int end;                     // end of this split
  ivec2 all, row_a, row_b;     // keys visible to all rows; keys visible to each of this lane's two rows
  uvec2 query_a, query_b;
  float exp_scale;                  // scale * log2(e)
};

KeyRanges ranges;

// Applies scale, mask and visible range to the scores.
void mask_scores(int key) {
#if MASKED
  FOR(b, KEY_BLOCKS) FOR(i, SCORE_COMPONENTS) {
    const uint at = uint(key) + b * 16u + ACC_COLUMN(i);
    const uvec2 query = i < 4u ? ranges.query_a : ranges.query_b;
    scores[b * kComponents + i] = attention_score(ranges.batch, query.x, query.y, at, scores[b * kComponents + i]);
  }
#elif SCALE_FIRST
  FOR(b, KEY_BLOCKS) FOR(i, SCORE_COMPONENTS) scores[b * kComponents + i] = scale_score(scores[b * kComponents + i]);
#endif
  if (key < ranges.all.x || key + int(KEYS_PER_SUBGROUP) > ranges.all.y)
    FOR(b, KEY_BLOCKS) FOR(i, SCORE_COMPONENTS) {
      const int at = key + int(b * 16u + ACC_COLUMN(i));
      const ivec2 visible_range = i < 4u ? ranges.row_a : ranges.row_b;
      if (at < visible_range.x || at >= min(visible_range.y, ranges.end)) scores[b * kComponents + i] = minus_infinity;
    }
}

// Online softmax: rescales the running sum and the accumulators to the new maximum; scores become probabilities.
void update_softmax() {
  const float exp_scale = ranges.exp_scale;
  vec2 new_max = row_max;
  FOR(b, KEY_BLOCKS) FOR(i, SCORE_COMPONENTS) new_max[i >> 2] = max(new_max[i >> 2], scores[b * kComponents + i]);
  new_max = reduce_row_max(new_max);
  const vec2 shift = vec2(softmax_shift(new_max.x), softmax_shift(new_max.y));
  const vec2 factor = vec2(EXP_SCORE(row_max.x, shift.x, exp_scale), EXP_SCORE(row_max.y, shift.y, exp_scale));
  row_max = new_max;
  sum *= factor;
  FOR(b, KEY_BLOCKS) FOR(i, SCORE_COMPONENTS) {
    const uint at = b * kComponents + i;
    scores[at] = EXP_SCORE(scores[at], shift[i >> 2], exp_scale) * kHeadroom;
    sum[i >> 2] += scores[at];
  }
  FOR(c, SCORE_COMPONENTS / 2u) {
    const uint component = (c & 1u) + (c >> 1) * 2u, lane = (LANE % 4u * 2u + (c & 1u)) * 4u;
    const float rescale = SHUFFLE(c < 2u ? factor.x : factor.y, lane);
    FOR(tile, OUTPUT_TILES) sums[tile][component] *= rescale, sums[tile][component + 4u] *= rescale;
  }
}

// SKIP_LAST_PREFETCH: a branch skips the prefetch after the last iteration; otherwise its registers are busy until useless loads end.
#if SKIP_LAST_PREFETCH
#define PREFETCHES(next) ((next) < ranges.end)
#else
#define PREFETCHES(next) true
#endif

// Main-loop iteration for the keys starting at `key`; prefetches the keys starting at `next` as soon as the registers are free.
void process_keys(int key, int next) {
  FOR(b, KEY_BLOCKS) multiply_keys(b);
  if (PREFETCHES(next)) load_keys(ranges.at_k, next, ranges.end);
  mask_scores(key);
  update_softmax();
  FOR(b, KEY_BLOCKS) multiply_values(b);
  if (PREFETCHES(next)) load_values(ranges.at_v, next, ranges.end);
}

void main() {
  const uint kv_heads = p.heads / p.group, batch = grid_group().y / kv_heads, kv_head = grid_group().y % kv_heads;
  // Compute the keys visible to any query, the keys visible to all queries, and this workgroup's split of the keys.
  const ivec2 first_visible = visible_keys(batch, 0u), last_visible = visible_keys(batch, p.rows - 1u);
  const uint keys = uint(max(last_visible.y - first_visible.x, 0)), keys_per_iteration = SUBGROUPS * KEYS_PER_SUBGROUP;
  const uint split_size = max((keys + grid_size().z * keys_per_iteration - 1u) / (grid_size().z * keys_per_iteration), 1u) * keys_per_iteration;
  const uint count = max((keys + split_size - 1u) / split_size, 1u), split = grid_group().z;
  if (split >= count) return;
  const int begin = first_visible.x + int(split * split_size), end = min(begin + int(split_size), last_visible.y);
  ranges.batch = batch, ranges.end = end, ranges.all = ivec2(last_visible.x, min(first_visible.y, end));
  ranges.at_k = k_head_offset(batch, kv_head * p.group), ranges.at_v = v_head_offset(batch, kv_head * p.group);
  ranges.query_a = query_of_row(LANE / 4u, kv_head), ranges.query_b = query_of_row(LANE / 4u + 8u, kv_head);
  ranges.row_a = visible_keys(batch, ranges.query_a.y), ranges.row_b = visible_keys(batch, ranges.query_b.y);
#if MASKED || SCALE_FIRST
  ranges.exp_scale = kLog2E;
#else
  ranges.exp_scale = p.scale * kLog2E;
#endif
  row_max = vec2(minus_infinity), sum = vec2(0.0);
  FOR(tile, OUTPUT_TILES) FOR(i, kComponents) sums[tile][i] = 0.0;
  int key = begin + int(SUBGROUP_ID * KEYS_PER_SUBGROUP);
  if (begin < end) {
    load_keys(ranges.at_k, key, end);
    load_values(ranges.at_v, key, end);
  }
  load_queries(batch, kv_head);
  // EMULATED multiplications have workgroup barriers: all subgroups must run the same number of iterations.
#if EMULATED
  const int first_key_offset = int(SUBGROUP_ID * KEYS_PER_SUBGROUP);
#else
  const int first_key_offset = 0;
#endif
  const int step = int(keys_per_iteration);
  for (; key - first_key_offset < end; key += step) process_keys(key, key + step);
  sum = reduce_row_sum(sum);
  store_subgroup_result(row_max, sum, ranges.exp_scale);
  barrier();
  for (uint item = gl_LocalInvocationIndex; item < OUTPUT_VEC4; item += INVOCATIONS) {
    const PartialVec4 merged_result = merge_shared_partials(item, item / VEC4_PER_ROW, OUTPUT_VEC4, ROWS, SUBGROUPS);
#if MERGES_SPLITS
    if (count > 1u) {
      const uint at = partial_offset(split) + item / VEC4_PER_ROW * PARTIAL_VEC4;
      partials[at + item % VEC4_PER_ROW] = merged_result.sums;
      if (item % VEC4_PER_ROW == 0u) partials[at + VEC4_PER_ROW] = vec4(merged_result.row_max, merged_result.sum, 0.0, 0.0);
      continue;
    }
#endif
    store_merged(item, batch, kv_head, merged_result);
  }
#if MERGES_SPLITS
  if (count > 1u && SUBGROUP_MERGES) merge_splits_by_subgroup(batch, kv_head, count);
  if (count > 1u && !SUBGROUP_MERGES) merge_splits(batch, kv_head, count);
#endif
}
