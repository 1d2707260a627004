// Flash attention on cooperative matrices in the m16n8k16 fragment layout: fp16 operands, float accumulators. See include/attention.glsl.
//
// Layout of a 16 x 16 matrix: invocation l of a subgroup of 32 holds rows l / 4 and l / 4 + 8, each with columns l % 4 * 2, + 1, + 8, + 9,
// in the same order for accumulators as for the A operand. So the scores become probabilities in registers, which serve directly as the A
// operand of P V.
//
// Workgroup = (tile of ROWS queries, head of a batch item), and z = split of the keys (SPLIT_KEYS). A subgroup keeps QUERY_TILES row tiles
// of 16 queries in registers; KEY_SLICES subgroups may process the same queries and split the keys of an iteration, KEY_TILE each. K and V
// tiles are in shared memory.
//   load Q fragments; prefetch K and V
//   for each tile of KEY_SLICES * KEY_TILE keys:
//     store K and V to shared memory (double-buffered if QUERY_TILES > 1); barrier; prefetch the next tile into registers
//     S = Q K^T; mask; online softmax: P = exp2(S - m); acc = acc * exp2(m_old - m) + P V
//   reduce over KEY_SLICES; y = acc / l
// KEY_LOOP: ALL_TILES_FULL if every query sees every key and all tiles are full; FULL_TILES_FIRST runs the leading tiles that all queries
// see in a specialised loop without masking. Workgroups with the longest causal range start first, for p.head_group neighbouring heads at a
// time.
//
// Requires VK_KHR_cooperative_matrix with the layout above (has_mma); EMULATED emulates it in tests. Head sizes are multiples of 8, and
// heads are 16-byte aligned. Selected in attention.cpp (choose_coopmat_plan); attention_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define ALL_TILES_FULL 0
#define FULL_TILES_FIRST 1
#define MIXED_TILES 2
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define VEC8 1
#define HEAD_GROUPS 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 128u;
layout(constant_id = 3) const uint KEY_TILE = 32u;
layout(constant_id = 4) const uint QUERY_TILES = 1u;  // tiles of 16 queries per subgroup
layout(constant_id = 5) const uint KEY_SLICES = 1u;  // subgroups that share queries and split the keys of an iteration, KEY_TILE each
#include "include/mma.glsl"

// number of subgroups with distinct queries; number of keys per iteration
const uint QUERY_GROUPS = INVOCATIONS / kLanes / KEY_SLICES, KEYS_PER_ITERATION = KEY_SLICES * KEY_TILE;
const uint SUBGROUP_ROWS = QUERY_TILES * 16u, ROWS = QUERY_GROUPS * SUBGROUP_ROWS;
const uint NUM_BUFFERS = QUERY_TILES > 1u ? 2u : 1u;  // 2: double-buffered, which saves a barrier per iteration
const uint KEY_FRAGMENTS = KEY_TILE / 16u;                                         // number of fragments along a subgroup's keys
const uint QK_FRAGMENTS = (SIZE + 15u) / 16u, V_FRAGMENTS = (V_SIZE + 15u) / 16u;  // number of fragments along the head
const uint VEC8_PER_K_ROW = QK_FRAGMENTS * 2u, VEC8_PER_V_ROW = V_FRAGMENTS * 2u;
const uint K_ROW_STRIDE = VEC8_PER_K_ROW + 1u, V_ROW_STRIDE = VEC8_PER_V_ROW + 1u;  // padded by one to avoid bank conflicts
const uint LOADS_K = (KEYS_PER_ITERATION * VEC8_PER_K_ROW + INVOCATIONS - 1u) / INVOCATIONS, LOADS_V = (KEYS_PER_ITERATION * VEC8_PER_V_ROW + INVOCATIONS - 1u) / INVOCATIONS;
const uint V_BUFFER_OFFSET = KEYS_PER_ITERATION * K_ROW_STRIDE, BUFFER_SIZE = V_BUFFER_OFFSET + KEYS_PER_ITERATION * V_ROW_STRIDE, STAGING_SIZE = NUM_BUFFERS * BUFFER_SIZE;
// Output staging: as many fragments of a row tile as fit into the existing shared memory are stored at once, for longer contiguous stores.
// Rows are padded.
const uint OUT_ROWS = INVOCATIONS / kLanes * 16u;
const uint MAX_OUT_FRAGMENTS = OUT_ROWS * 17u <= STAGING_SIZE ? 4u : OUT_ROWS * 9u <= STAGING_SIZE ? 2u : 1u;
const uint OUT_FRAGMENTS = V_FRAGMENTS % MAX_OUT_FRAGMENTS == 0u ? MAX_OUT_FRAGMENTS : V_FRAGMENTS % 2u == 0u ? 2u : 1u;
const uint OUT_VEC4 = OUT_FRAGMENTS * 4u, OUT_ROW_STRIDE = OUT_VEC4 + 1u, OUT_SIZE = OUT_ROWS * OUT_ROW_STRIDE;
// Partial results of split-K subgroups, which the first subgroup reduces: accumulators, and for each row tile the maximum and the sum.
const uint PARTIAL_SIZE = QUERY_TILES * (V_FRAGMENTS * 2u + 1u) * kLanes, PARTIALS_SIZE = (KEY_SLICES - 1u) * QUERY_GROUPS * PARTIAL_SIZE;
const uint REUSED_SIZE = PARTIALS_SIZE > OUT_SIZE ? PARTIALS_SIZE : OUT_SIZE;

shared uvec4 staged[STAGING_SIZE > REUSED_SIZE ? STAGING_SIZE : REUSED_SIZE];

uvec4 next_k[LOADS_K], next_v[LOADS_V > LOADS_K ? LOADS_V : LOADS_K];  // these registers also stage the queries
MATRIX_A(queries[QUERY_TILES * QK_FRAGMENTS]);
ACCUMULATOR_ARRAY(sums, QUERY_TILES * V_FRAGMENTS);

#if EMULATED
#define FOR(i, count) for (uint i = 0u; i < (count); ++i)
// Loads an operand whose lines (LOAD_ROW_MAJOR) or K steps (LOAD_K_MAJOR) are rows of `staged`, starting at index `at`.
#define LOAD_ROW_MAJOR(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    matrix[i] = load_staged_fp16((at) + ACC_ROW(i) * (row), ACC_COLUMN(i));
#define LOAD_K_MAJOR(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    matrix[i] = load_staged_fp16((at) + ACC_COLUMN(i) * (row), ACC_ROW(i));
#define LOAD_QUERIES LOAD_ROW_MAJOR
#define LOAD_KEYS LOAD_ROW_MAJOR
#define LOAD_VALUES LOAD_K_MAJOR
#define STORE_ACC(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    staged[(at) + ACC_ROW(i) * (row) + ACC_COLUMN(i) / 4u][ACC_COLUMN(i) % 4u] = floatBitsToUint(matrix[i]);

float load_staged_fp16(uint at, uint column) { return unpackHalf2x16(staged[at + column / 8u][column % 8u / 2u])[column % 2u]; }
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#define LOAD_QUERIES(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_KEYS(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_VALUES(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#define STORE_ACC(matrix, at, row) coopMatStore(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#endif

// Whether component i belongs to the lane's first row of a tile (0) or the second (1).
#define ROW_HALF(i) ((i) >> 2)

// exp(score - shift). Without a mask, the scores stay unscaled, and the fma applies `exp_scale` = scale * log2(e) to score and shift.
// SCALE_FIRST: scores are scaled first. Masked scores use exp: a mask may add the lowest float, which `exp_scale` would turn into
// -infinity.
#if MASKED
#define EXP_SCORE(score, shift, exp_scale) exp((score) - (shift))
#else
#define EXP_SCORE(score, shift, exp_scale) exp2(fma(score, exp_scale, -(shift) * (exp_scale)))
#endif
const float kLog2E = 1.44269504;  // log2(e)

// Branch-free loads: keys past the end repeat the last key, elements past the head size become zero.
#define DEFINE_FETCH(name, x, next, loads, vec8_per_row, size)                                                     \
  void name(uint at, uint row_stride, int key, int end) {                                             \
    FOR(i, loads) {                                                                                   \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS, vec8_index = n % vec8_per_row;                   \
      const uint row = uint(min(key + int(n / vec8_per_row), end - 1));                                     \
      next[i] = x[(at + row * row_stride) / 8u + min(vec8_index, size / 8u - 1u)];                         \
      if (vec8_index * 8u >= size) next[i] = uvec4(0u);                                                    \
    }                                                                                                 \
  }
#define DEFINE_STORE(name, next, loads, vec8_per_row, row_size)                                                    \
  void name(uint first) {                                                                             \
    FOR(i, loads) {                                                                                   \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS;                                       \
      if (n < KEYS_PER_ITERATION * vec8_per_row) staged[n / vec8_per_row * row_size + n % vec8_per_row + first] = next[i];         \
    }                                                                                                 \
  }
DEFINE_FETCH(fetch_k, k, next_k, LOADS_K, VEC8_PER_K_ROW, SIZE)
DEFINE_FETCH(fetch_v, v, next_v, LOADS_V, VEC8_PER_V_ROW, V_SIZE)
DEFINE_FETCH(fetch_q, q, next_k, LOADS_K, VEC8_PER_K_ROW, SIZE)
DEFINE_FETCH(fetch_second_q, q, next_v, LOADS_K, VEC8_PER_K_ROW, SIZE)
DEFINE_STORE(store_k, next_k, LOADS_K, VEC8_PER_K_ROW, K_ROW_STRIDE)
DEFINE_STORE(store_v, next_v, LOADS_V, VEC8_PER_V_ROW, V_ROW_STRIDE)
DEFINE_STORE(store_second_q, next_v, LOADS_K, VEC8_PER_K_ROW, K_ROW_STRIDE)

#define QUERY_GROUP_INDEX (SUBGROUP_ID % QUERY_GROUPS)
#define KEY_SLICE_INDEX (SUBGROUP_ID / QUERY_GROUPS)

// Stage twice as many queries per round if the V buffer has room for them, so that all loads are in flight at once. With two row tiles
// there are too few registers: 32 heads of 64 elements were 3% slower.
const bool STAGES_TWO_TILES = QUERY_TILES == 1u && V_ROW_STRIDE >= K_ROW_STRIDE;
const uint QUERIES_PER_ROUND = STAGES_TWO_TILES ? 2u * KEYS_PER_ITERATION : KEYS_PER_ITERATION;

// Loads the Q fragments, and prefetches the first K and V tiles, starting at `begin`.
void load_queries(uint at, uint first_row, uint at_k, uint at_v, int begin, int end) {
  for (uint first = 0u; first < ROWS; first += QUERIES_PER_ROUND) {
    fetch_q(at, p.q_row, int(first_row + first), int(p.rows));
    if (STAGES_TWO_TILES) fetch_second_q(at, p.q_row, int(first_row + first + KEYS_PER_ITERATION), int(p.rows));
    if (first > 0u) barrier();  // wait until no subgroup is still loading the previous queries
    store_k(0u);
    if (STAGES_TWO_TILES) store_second_q(V_BUFFER_OFFSET);
    if (first + QUERIES_PER_ROUND >= ROWS && begin < end) {
      fetch_k(at_k, p.k_row, begin, end);
      fetch_v(at_v, p.v_row, begin, end);
    }
    barrier();
    FOR(s, QUERY_TILES) {
      const uint tile_row = QUERY_GROUP_INDEX * SUBGROUP_ROWS + s * 16u - first;
      const uint from = tile_row < KEYS_PER_ITERATION ? tile_row * K_ROW_STRIDE : V_BUFFER_OFFSET + (tile_row - KEYS_PER_ITERATION) * K_ROW_STRIDE;
      if (ROWS <= QUERIES_PER_ROUND || tile_row < QUERIES_PER_ROUND)
        FOR(step, QK_FRAGMENTS) LOAD_QUERIES(queries[s * QK_FRAGMENTS + step], from + step * 2u, K_ROW_STRIDE);
    }
  }
  // Store the zeros that opaque_zero() reads.
  if (gl_LocalInvocationIndex < NUM_BUFFERS) staged[gl_LocalInvocationIndex * BUFFER_SIZE + VEC8_PER_K_ROW] = uvec4(0u);
  barrier();  // Q is in registers; K reuses the buffer
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

#if SPLIT_KEYS
#define HEAD_GROUP_SIZE 1u  // heads scheduled together: 1, since with split-K there are few tiles
#else
#define HEAD_GROUP_SIZE p.head_group
#endif

// Maps the workgroup to (head of a batch item, row tile); workgroups start in index order.
uvec2 scheduled_tile() {
  const uint heads = grid_size().y, tiles = grid_size().x, number = grid_group().y * tiles + grid_group().x;
  const uint chunk = number / (tiles * HEAD_GROUP_SIZE), first = chunk * HEAD_GROUP_SIZE, index_in_chunk = number - tiles * first;
  const uint width = min(heads - first, HEAD_GROUP_SIZE);
  return uvec2(first + index_in_chunk % width, tiles - 1u - index_in_chunk / width);
}

// Visible key ranges, and the workgroup's split of the keys.
struct KeyRanges {
  uint batch, head;
  int end;                 // end of this split
  ivec2 visible_to_group;  // keys visible to all rows of the workgroup
  ivec2 all, any;          // keys visible to all and to any rows of the subgroup
  float exp_scale;         // scale * log2(e)
};

KeyRanges ranges;
uvec2 row[QUERY_TILES];                            // the two rows of each tile that this lane holds
ivec2 visible_range[QUERY_TILES * 2u];             // visible keys of each of these rows
vec2 row_max[QUERY_TILES], sum[QUERY_TILES];       // running maximum and sum
float scores[QUERY_TILES * KEY_FRAGMENTS * 8u];    // scores, then probabilities

void multiply_keys(uint stage) {
  ACCUMULATOR_ARRAY(products, QUERY_TILES * KEY_FRAGMENTS);
  FOR(b, QUERY_TILES * KEY_FRAGMENTS) FILL_ACCUMULATOR(products[b], 0.0);
  FOR(step, QK_FRAGMENTS) FOR(j, KEY_FRAGMENTS) {
    MATRIX_B(keys);
    LOAD_KEYS(keys, stage + j * 16u * K_ROW_STRIDE + step * 2u, K_ROW_STRIDE);
    FOR(s, QUERY_TILES) MMA(queries[s * QK_FRAGMENTS + step], keys, products[s * KEY_FRAGMENTS + j]);
  }
  FOR(b, QUERY_TILES * KEY_FRAGMENTS) FOR(i, 8u) scores[b * 8u + i] = products[b][i];
}

#if MASKED && !MASK_BY_ROW
uint column_mask[KEY_FRAGMENTS * 2u];  // the mask of this lane's columns, if it is the same for all rows: fp16 pairs

// Prefetches the mask before Q K^T, to hide its latency.
void fetch_mask(int key) {
  FOR(i, KEY_FRAGMENTS * 2u) {
    vec2 pair;
    FOR(j, 2u) {
      const uint at = min(uint(key) + i / 2u * 16u + ACC_COLUMN(i % 2u * 2u + j), last_masked());
      pair[j] = load_mask(mask_index(ranges.batch, ranges.head, 0u, at));
    }
    column_mask[i] = packHalf2x16(pair);
  }
}
#endif

// Applies scale, mask and visible range to the scores. is_limited = false: all keys of the iteration are visible to all rows.
void mask_scores(int key, bool is_limited) {
#if MASKED
  FOR(i, QUERY_TILES * KEY_FRAGMENTS * 8u) scores[i] = scale_score(scores[i]);
  FOR(b, QUERY_TILES * KEY_FRAGMENTS) FOR(i, 8u) {
#if MASK_BY_ROW
    const uint at = min(uint(key) + b % KEY_FRAGMENTS * 16u + ACC_COLUMN(i), last_masked());
    const float added = load_mask(mask_index(ranges.batch, ranges.head, row[b / KEY_FRAGMENTS][ROW_HALF(i)], at));
#else
    const float added = unpackHalf2x16(column_mask[b % KEY_FRAGMENTS * 2u + (i >> 1 & 1u)])[i & 1u];
#endif
    scores[b * 8u + i] = apply_mask(scores[b * 8u + i], added);
  }
#elif SCALE_FIRST
  FOR(i, QUERY_TILES * KEY_FRAGMENTS * 8u) scores[i] = scale_score(scores[i]);
#endif
  if (is_limited && (key < ranges.all.x || key + int(KEY_TILE) > ranges.all.y))
    FOR(b, QUERY_TILES * KEY_FRAGMENTS) FOR(i, 8u) {
      const int at = key + int(b % KEY_FRAGMENTS * 16u + ACC_COLUMN(i));
      const ivec2 row_range = visible_range[b / KEY_FRAGMENTS * 2u + ROW_HALF(i)];
      if (at < row_range.x || at >= min(row_range.y, ranges.end)) scores[b * 8u + i] = minus_infinity;
    }
}

// Online softmax of a row tile: rescales the running sum and the accumulators to the new maximum; scores become probabilities.
void update_softmax(uint s) {
  const float exp_scale = ranges.exp_scale;
  vec2 new_max = row_max[s];
  FOR(j, KEY_FRAGMENTS) {  // max over groups of four, to shorten the dependency chain
    const uint at = (s * KEY_FRAGMENTS + j) * 8u;
    FOR(h, 2u)
      new_max[h] = max(new_max[h], max(max(scores[at + h * 4u], scores[at + h * 4u + 1u]), max(scores[at + h * 4u + 2u], scores[at + h * 4u + 3u])));
  }
  new_max = reduce_row_max(new_max);
  const vec2 shift = vec2(softmax_shift(new_max.x), softmax_shift(new_max.y));
  const vec2 factor = vec2(EXP_SCORE(row_max[s].x, shift.x, exp_scale), EXP_SCORE(row_max[s].y, shift.y, exp_scale));
  row_max[s] = new_max;
  sum[s] *= factor;
  FOR(j, V_FRAGMENTS) FOR(i, 8u) sums[s * V_FRAGMENTS + j][i] *= factor[ROW_HALF(i)];
  FOR(i, KEY_FRAGMENTS * 8u) {
    const uint at = s * KEY_FRAGMENTS * 8u + i;
    scores[at] = EXP_SCORE(scores[at], shift[ROW_HALF(i % 8u)], exp_scale);
    sum[s][ROW_HALF(i % 8u)] += scores[at];
  }
}

void multiply_values(uint stage) {
  FOR(step, KEY_FRAGMENTS) {
    MATRIX_A(probabilities[QUERY_TILES]);
    FOR(s, QUERY_TILES) FOR(i, 8u) probabilities[s][i] = TO_OPERAND(scores[(s * KEY_FRAGMENTS + step) * 8u + i]);
    FOR(j, V_FRAGMENTS) {
      MATRIX_B(values);
      LOAD_VALUES(values, stage + step * 16u * V_ROW_STRIDE + j * 2u, V_ROW_STRIDE);
      FOR(s, QUERY_TILES) MMA(probabilities[s], values, sums[s * V_FRAGMENTS + j]);
    }
  }
}

uint stage = 0u;  // shared memory buffer of this iteration
// With two row tiles there are too few registers for opaque_zero(), unless the loop has no branches.
const bool USES_OPAQUE_ZERO = QUERY_TILES == 1u || KEY_LOOP == ALL_TILES_FULL;

// Returns zero, but reads it from shared memory after the barrier, so that the driver cannot hoist the prefetch above it. The prefetched
// tile then reuses the registers of the tile just stored. A hoisted prefetch needs twice the registers and copies them in every iteration.
int opaque_zero() { return USES_OPAQUE_ZERO ? int(staged[stage + VEC8_PER_K_ROW].x) : 0; }

// Main-loop iteration: processes the keys starting at `first` and prefetches the next tile.
void process_tile(uint at_k, uint at_v, int first, bool is_limited) {
  store_k(stage);
  store_v(stage + V_BUFFER_OFFSET);
  barrier();
  const int next = first + int(KEYS_PER_ITERATION) + opaque_zero(), key = first + int(KEY_SLICE_INDEX * KEY_TILE);
  fetch_k(at_k, p.k_row, next, ranges.end);
  fetch_v(at_v, p.v_row, next, ranges.end);
#if EMULATED
  const bool is_needed = true;
#else
  const bool is_needed = !is_limited || (key < ranges.any.y && key + int(KEY_TILE) > ranges.any.x);
#endif
  if (is_needed) {
#if MASKED && !MASK_BY_ROW
    fetch_mask(key);
#endif
    multiply_keys(stage + KEY_SLICE_INDEX * KEY_TILE * K_ROW_STRIDE);
    mask_scores(key, is_limited);
    FOR(s, QUERY_TILES) update_softmax(s);
    multiply_values(stage + V_BUFFER_OFFSET + KEY_SLICE_INDEX * KEY_TILE * V_ROW_STRIDE);
  }
  if (NUM_BUFFERS == 1u)
    barrier();  // wait until no subgroup is still reading K and V
  else
    stage = BUFFER_SIZE - stage;
}

// Main loop, starting at key `begin`. FULL_TILES_FIRST runs unmasked iterations in a specialised loop, which has no branch and no register
// copies after it. Not done with EMULATED: drivers take minutes to compile twice as many barriers.
void process_keys(uint at_k, uint at_v, int begin) {
  const int end = ranges.end, step = int(KEYS_PER_ITERATION);
  int first = begin;
#if KEY_LOOP == FULL_TILES_FIRST && !EMULATED
  for (; first >= ranges.visible_to_group.x && first + step <= ranges.visible_to_group.y; first += step) process_tile(at_k, at_v, first, false);
#endif
  for (; first < end; first += step) process_tile(at_k, at_v, first, KEY_LOOP != ALL_TILES_FULL);
  if (NUM_BUFFERS > 1u) barrier();  // the output staging reuses the K and V buffers
}

// Reduces the partial results of split-K subgroups into the first.
void reduce_key_slices() {
  if (KEY_SLICES == 1u) return;
  FOR(s, QUERY_TILES) {
    const uint first = ((KEY_SLICE_INDEX * QUERY_GROUPS + QUERY_GROUP_INDEX - QUERY_GROUPS) * QUERY_TILES + s) * (V_FRAGMENTS * 2u + 1u) * kLanes + LANE;
    if (KEY_SLICE_INDEX > 0u) staged[first] = floatBitsToUint(vec4(row_max[s], sum[s]));
    FOR(j, V_FRAGMENTS * 2u) {
      const vec4 acc4 = ACC_VEC4(sums[s * V_FRAGMENTS + j / 2u], j % 2u * 4u);
      if (KEY_SLICE_INDEX > 0u) staged[first + (j + 1u) * kLanes] = floatBitsToUint(acc4);
    }
  }
  barrier();  // wait until all partial results have been stored
  FOR(slice, KEY_SLICES - 1u) FOR(s, QUERY_TILES) {
    const uint first = ((slice * QUERY_GROUPS + QUERY_GROUP_INDEX) * QUERY_TILES + s) * (V_FRAGMENTS * 2u + 1u) * kLanes + LANE;
    const vec4 other = uintBitsToFloat(staged[first]);
    const vec2 new_max = max(row_max[s], other.xy), shift = vec2(softmax_shift(new_max.x), softmax_shift(new_max.y));
    const vec2 rescale = vec2(EXP_SCORE(row_max[s].x, shift.x, ranges.exp_scale), EXP_SCORE(row_max[s].y, shift.y, ranges.exp_scale));
    const vec2 other_scale = vec2(EXP_SCORE(other.x, shift.x, ranges.exp_scale), EXP_SCORE(other.y, shift.y, ranges.exp_scale));
    row_max[s] = new_max;
    sum[s] = sum[s] * rescale + other.zw * other_scale;
    FOR(j, V_FRAGMENTS * 2u) {
      const vec4 acc4 = uintBitsToFloat(staged[first + (j + 1u) * kLanes]);
      FOR(i, 4u) {
        const uint at = j % 2u * 4u + i;
        sums[s * V_FRAGMENTS + j / 2u][at] = sums[s * V_FRAGMENTS + j / 2u][at] * rescale[ROW_HALF(at)] + acc4[i] * other_scale[ROW_HALF(at)];
      }
    }
  }
  barrier();  // wait until all partial results have been read; the output staging reuses the memory
}

// Stores the output of a row tile, OUT_FRAGMENTS fragments at a time; adjacent lanes store adjacent columns.
void store_query_tile(uint s, uint first_row, uint last_row) {
  const uint out_offset = SUBGROUP_ID * 16u * OUT_ROW_STRIDE;
  const vec2 all = reduce_row_sum(sum[s]);
#if !SPLIT_KEYS
  const vec2 inv_sum = vec2(inverse_sum(all.x), inverse_sum(all.y));
  FOR(j, V_FRAGMENTS) FOR(i, 8u) sums[s * V_FRAGMENTS + j][i] *= inv_sum[ROW_HALF(i)];
#endif
  FOR(fragment_group, V_FRAGMENTS / OUT_FRAGMENTS) {
    FOR(j, OUT_FRAGMENTS) STORE_ACC(sums[s * V_FRAGMENTS + fragment_group * OUT_FRAGMENTS + j], out_offset + j * 4u, OUT_ROW_STRIDE);
    SUBGROUP_BARRIER();
    for (uint n = LANE; n < 16u * OUT_VEC4; n += kLanes) {
      const uint out_row = first_row + n / OUT_VEC4, vec4_index = n % OUT_VEC4;
      if (out_row <= last_row && KEY_SLICE_INDEX == 0u)
        store_output_vec4(y_row_offset(ranges.batch, ranges.head, out_row), (fragment_group * OUT_VEC4 + vec4_index) * 4u,
                   uintBitsToFloat(staged[out_offset + n / OUT_VEC4 * OUT_ROW_STRIDE + vec4_index]), 1.0);
    }
    SUBGROUP_BARRIER();
  }
#if SPLIT_KEYS
#if !MASKED
  const vec2 max_score = row_max[s] * (ranges.exp_scale / kLog2E);
#else
  const vec2 max_score = row_max[s];
#endif
  FOR(i, 2u)
    if (LANE % 4u == 0u && KEY_SLICE_INDEX == 0u && first_row + LANE / 4u + i * 8u <= last_row)
      store_softmax_stats(y_row_offset(ranges.batch, ranges.head, first_row + LANE / 4u + i * 8u), max_score[i], all[i]);
#endif
}

void main() {
  const uvec2 head_tile = scheduled_tile();
  const uint batch = head_tile.x / p.heads, head = head_tile.x % p.heads, first_row = head_tile.y * ROWS;
  const uint last_row = min(first_row + ROWS, p.rows) - 1u;
#if SPLIT_KEYS
  const ivec2 split_range = ivec2(grid_group().z * p.split_size, (grid_group().z + 1u) * p.split_size);
#else
  const ivec2 split_range = ivec2(0, 0x7fffffff);
#endif
  const int begin = max(visible_keys(batch, first_row).x, split_range.x), end = min(visible_keys(batch, last_row).y, split_range.y);
  const uint first_subgroup_row = first_row + QUERY_GROUP_INDEX * SUBGROUP_ROWS;
  const ivec2 first_visible = visible_keys(batch, min(first_subgroup_row, last_row));
  const ivec2 last_visible = visible_keys(batch, min(first_subgroup_row + SUBGROUP_ROWS - 1u, last_row));
  ranges.batch = batch, ranges.head = head, ranges.end = end;
  ranges.visible_to_group = ivec2(visible_keys(batch, last_row).x, min(visible_keys(batch, first_row).y, end));
  ranges.all = ivec2(last_visible.x, min(first_visible.y, end)), ranges.any = ivec2(first_visible.x, min(last_visible.y, end));
#if MASKED
  ranges.exp_scale = 1.0;
#elif SCALE_FIRST
  ranges.exp_scale = kLog2E;
#else
  ranges.exp_scale = p.scale * kLog2E;
#endif
  FOR(s, QUERY_TILES) {
    row[s] = min(uvec2(first_subgroup_row + s * 16u + LANE / 4u) + uvec2(0u, 8u), uvec2(last_row));
    visible_range[s * 2u] = visible_keys(batch, row[s].x), visible_range[s * 2u + 1u] = visible_keys(batch, row[s].y);
    row_max[s] = vec2(minus_infinity), sum[s] = vec2(0.0);
  }
  FOR(i, QUERY_TILES * V_FRAGMENTS) FILL_ACCUMULATOR(sums[i], 0.0);
  const uint at_k = k_head_offset(batch, head), at_v = v_head_offset(batch, head);
  load_queries(q_row_offset(batch, head, 0u), first_row, at_k, at_v, begin, end);
  process_keys(at_k, at_v, begin);
  reduce_key_slices();
  FOR(s, QUERY_TILES) store_query_tile(s, first_subgroup_row + s * 16u, last_row);
}
