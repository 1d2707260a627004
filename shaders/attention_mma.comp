// Flash attention on cooperative matrices in the m16n8k16 fragment layout: fp16 operands, float accumulators. See include/attention.glsl.
//
// Layout of a 16 x 16 matrix: invocation l of a subgroup of 32 holds rows l / 4 and l / 4 + 8, each with columns l % 4 * 2, + 1, + 8, + 9,
// in the same order for accumulators as for the A operand. So scores become probabilities in registers, and these are the A operand of P V.
//
// Workgroup = (tile of ROWS queries, head of a batch item), and z = split of the keys (PARTS). A subgroup keeps STRIPS row tiles of 16
// queries in registers; SHARES subgroups may process the same queries and split the keys of an iteration, KEYS each. K and V tiles are in
// shared memory.
//   load Q fragments; prefetch K and V
//   for each tile of SHARES * KEYS keys:
//     store K and V to shared memory (double-buffered if STRIPS > 1); barrier; prefetch the next tile into registers
//     S = Q K^T; mask; online softmax: P = exp2(S - m); acc = acc * exp2(m_old - m) + P V
//   reduce over SHARES; y = acc / l
// TURNS: ALL_WHOLE if all queries see all keys and fill all tiles; WHOLE_FIRST runs tiles that all queries see in a specialised loop
// without masking, up to the first other tile. Workgroups with the longest causal range start first, for p.together neighbouring heads at a
// time.
//
// Requires VK_KHR_cooperative_matrix with the layout above (has_quads); EMULATED replaces it in tests. Heads are whole, aligned vec8s.
// Selected in attention.cpp (matrix_plan); attention_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define ALL_WHOLE 0
#define WHOLE_FIRST 1
#define IN_ANY_ORDER 2
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define EIGHTS 1
#define ORDERED 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 128u;
layout(constant_id = 3) const uint KEYS = 32u;
layout(constant_id = 4) const uint STRIPS = 1u;  // tiles of 16 queries per subgroup
layout(constant_id = 5) const uint SHARES = 1u;  // subgroups that share queries and split the keys of an iteration, KEYS each
#include "include/mma.glsl"

const uint TEAMS = INVOCATIONS / kLanes / SHARES, STRETCH = SHARES * KEYS;  // subgroups with distinct queries; keys per iteration
const uint OWN_ROWS = STRIPS * 16u, ROWS = TEAMS * OWN_ROWS;
const uint BUFFERS = STRIPS > 1u ? 2u : 1u;  // 2: double-buffered, which saves a barrier per iteration
const uint BLOCKS = KEYS / 16u;                                         // number of fragments along a subgroup's keys
const uint STEPS = (SIZE + 15u) / 16u, V_STEPS = (V_SIZE + 15u) / 16u;  // number of fragments along the head
const uint EIGHTS_K = STEPS * 2u, EIGHTS_V = V_STEPS * 2u;
const uint ROW_K = EIGHTS_K + 1u, ROW_V = EIGHTS_V + 1u;  // padded by one to avoid bank conflicts
const uint LOADS_K = (STRETCH * EIGHTS_K + INVOCATIONS - 1u) / INVOCATIONS, LOADS_V = (STRETCH * EIGHTS_V + INVOCATIONS - 1u) / INVOCATIONS;
const uint FIRST_V = STRETCH * ROW_K, BUFFER = FIRST_V + STRETCH * ROW_V, STAGED = BUFFERS * BUFFER;
// Output staging: as many fragments of a row tile as fit into the existing shared memory are stored at once, for longer contiguous stores.
// Rows are padded.
const uint OUT_ROWS = INVOCATIONS / kLanes * 16u;
const uint ROOM_FOR = OUT_ROWS * 17u <= STAGED ? 4u : OUT_ROWS * 9u <= STAGED ? 2u : 1u;
const uint OUT_STEPS = V_STEPS % ROOM_FOR == 0u ? ROOM_FOR : V_STEPS % 2u == 0u ? 2u : 1u;
const uint OUT_FOURS = OUT_STEPS * 4u, ROW_OUT = OUT_FOURS + 1u, OUT = OUT_ROWS * ROW_OUT;
// Partial results of split-K subgroups, which the first one reduces: accumulators, and for each row tile the maximum and the sum.
const uint MET = STRIPS * (V_STEPS * 2u + 1u) * kLanes, MEETING = (SHARES - 1u) * TEAMS * MET;
const uint MOST = MEETING > OUT ? MEETING : OUT;

shared uvec4 staged[STAGED > MOST ? STAGED : MOST];

uvec4 next_k[LOADS_K], next_v[LOADS_V > LOADS_K ? LOADS_V : LOADS_K];  // these registers also stage the queries
LEFT(queries[STRIPS * STEPS]);
SUMS_OF(sums, STRIPS * V_STEPS);

#if EMULATED
#define FOR(i, count) for (uint i = 0u; i < (count); ++i)
// Loads an operand whose lines (LOAD_LINES) or K steps (LOAD_STEPS) are rows of `staged`, from index `at` on.
#define LOAD_LINES(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    matrix[i] = staged_half((at) + ROW_OF(i) * (row), COLUMN_OF(i));
#define LOAD_STEPS(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    matrix[i] = staged_half((at) + COLUMN_OF(i) * (row), ROW_OF(i));
#define LOAD_QUERIES LOAD_LINES
#define LOAD_KEYS LOAD_LINES
#define LOAD_VALUES LOAD_STEPS
#define STORE_SUMS(matrix, at, row)                                                                   \
  for (uint i = 0u; i < kComponents; ++i)                                                             \
    staged[(at) + ROW_OF(i) * (row) + COLUMN_OF(i) / 4u][COLUMN_OF(i) % 4u] = floatBitsToUint(matrix[i]);

float staged_half(uint at, uint column) { return unpackHalf2x16(staged[at + column / 8u][column % 8u / 2u])[column % 2u]; }
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#define LOAD_QUERIES(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_KEYS(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_VALUES(matrix, at, row) coopMatLoad(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#define STORE_SUMS(matrix, at, row) coopMatStore(matrix, staged, at, row, gl_CooperativeMatrixLayoutRowMajor)
#endif

// Which of its two rows of a tile component i belongs to: 0 or 1.
#define HALF_OF(i) ((i) >> 2)

// exp(score - reference). Without a mask, the scores stay unscaled and `unit` = scale * log2(e) is folded into the fma with the reference.
// BY_SCORE: scores are scaled first. Masked scores use exp: a mask may add the lowest float, which `unit` would turn into -infinity.
#if MASKED
#define POWER(score, reference, unit) exp((score) - (reference))
#else
#define POWER(score, reference, unit) exp2(fma(score, unit, -(reference) * (unit)))
#endif
const float kPowersOfTwo = 1.44269504;  // log2(e)

// Branch-free loads: keys past the end repeat the last key, elements past the head become zero.
#define FETCH(name, x, next, loads, eights, size)                                                     \
  void name(uint at, uint row_stride, int key, int end) {                                             \
    FOR(i, loads) {                                                                                   \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS, eight = n % eights;                   \
      const uint row = uint(min(key + int(n / eights), end - 1));                                     \
      next[i] = x[(at + row * row_stride) / 8u + min(eight, size / 8u - 1u)];                         \
      if (eight * 8u >= size) next[i] = uvec4(0u);                                                    \
    }                                                                                                 \
  }
#define STORE(name, next, loads, eights, row_size)                                                    \
  void name(uint first) {                                                                             \
    FOR(i, loads) {                                                                                   \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS;                                       \
      if (n < STRETCH * eights) staged[n / eights * row_size + n % eights + first] = next[i];         \
    }                                                                                                 \
  }
FETCH(fetch_k, k, next_k, LOADS_K, EIGHTS_K, SIZE)
FETCH(fetch_v, v, next_v, LOADS_V, EIGHTS_V, V_SIZE)
FETCH(fetch_q, q, next_k, LOADS_K, EIGHTS_K, SIZE)
FETCH(fetch_more_q, q, next_v, LOADS_K, EIGHTS_K, SIZE)
STORE(store_k, next_k, LOADS_K, EIGHTS_K, ROW_K)
STORE(store_v, next_v, LOADS_V, EIGHTS_V, ROW_V)
STORE(store_more_q, next_v, LOADS_K, EIGHTS_K, ROW_K)

#define TEAM (SUBGROUP_NUMBER % TEAMS)
#define SHARE (SUBGROUP_NUMBER / TEAMS)

// Stage twice as many queries per round if the V buffer has room for them, so that all loads are in flight at once. With two row tiles
// there are too few registers: 32 heads of 64 elements were 3% slower.
const bool PAIRED = STRIPS == 1u && ROW_V >= ROW_K;
const uint ROUND = PAIRED ? 2u * STRETCH : STRETCH;

// Loads the Q fragments, and prefetches the first K and V tiles from `begin` on.
void load_queries(uint at, uint first_row, uint at_k, uint at_v, int begin, int end) {
  for (uint first = 0u; first < ROWS; first += ROUND) {
    fetch_q(at, p.q_row, int(first_row + first), int(p.rows));
    if (PAIRED) fetch_more_q(at, p.q_row, int(first_row + first + STRETCH), int(p.rows));
    if (first > 0u) barrier();  // wait until no subgroup is still loading the previous queries
    store_k(0u);
    if (PAIRED) store_more_q(FIRST_V);
    if (first + ROUND >= ROWS && begin < end) {
      fetch_k(at_k, p.k_row, begin, end);
      fetch_v(at_v, p.v_row, begin, end);
    }
    barrier();
    FOR(s, STRIPS) {
      const uint strip = TEAM * OWN_ROWS + s * 16u - first;
      const uint from = strip < STRETCH ? strip * ROW_K : FIRST_V + (strip - STRETCH) * ROW_K;
      if (ROWS <= ROUND || strip < ROUND)
        FOR(step, STEPS) LOAD_QUERIES(queries[s * STEPS + step], from + step * 2u, ROW_K);
    }
  }
  if (gl_LocalInvocationIndex < BUFFERS) staged[gl_LocalInvocationIndex * BUFFER + EIGHTS_K] = uvec4(0u);  // read by zero_of_turn()
  barrier();  // Q is in registers; K reuses the buffer
}

// Row reductions over the four lanes that share a row.
vec2 largest_of_row(vec2 v) {
  v = max(v, vec2(FROM_OTHER(v.x, 1u), FROM_OTHER(v.y, 1u)));
  return max(v, vec2(FROM_OTHER(v.x, 2u), FROM_OTHER(v.y, 2u)));
}

vec2 sum_of_row(vec2 v) {
  v += vec2(FROM_OTHER(v.x, 1u), FROM_OTHER(v.y, 1u));
  return v + vec2(FROM_OTHER(v.x, 2u), FROM_OTHER(v.y, 2u));
}

#if PARTS
#define TOGETHER 1u  // heads scheduled together: 1, since with split-K there are few tiles
#else
#define TOGETHER p.together
#endif

// Maps the workgroup to (head of a batch item, row tile); workgroups start in index order.
uvec2 place_of_group() {
  const uint heads = grid_size().y, tiles = grid_size().x, number = grid_group().y * tiles + grid_group().x;
  const uint chunk = number / (tiles * TOGETHER), first = chunk * TOGETHER, own = number - tiles * first;
  const uint width = min(heads - first, TOGETHER);
  return uvec2(first + own % width, tiles - 1u - own / width);
}

// Visible key ranges, and the workgroup's split of the keys.
struct Seen {
  uint image, head;
  int end;         // end of this split
  ivec2 whole;     // keys visible to all rows of the workgroup
  ivec2 all, any;  // keys visible to all and to any rows of the subgroup
  float unit;      // scale * log2(e)
};

Seen seen;
uvec2 row[STRIPS];                     // the two rows of each tile that this lane holds
ivec2 sees[STRIPS * 2u];               // visible keys of each of these rows
vec2 largest[STRIPS], sum[STRIPS];     // running maximum and sum
float scores[STRIPS * BLOCKS * 8u];    // scores, then probabilities

void multiply_keys(uint stage) {
  SUMS_OF(products, STRIPS * BLOCKS);
  FOR(b, STRIPS * BLOCKS) SET_SUMS(products[b], 0.0);
  FOR(step, STEPS) FOR(j, BLOCKS) {
    RIGHT(keys);
    LOAD_KEYS(keys, stage + j * 16u * ROW_K + step * 2u, ROW_K);
    FOR(s, STRIPS) MULTIPLY_ADD(queries[s * STEPS + step], keys, products[s * BLOCKS + j]);
  }
  FOR(b, STRIPS * BLOCKS) FOR(i, 8u) scores[b * 8u + i] = products[b][i];
}

#if MASKED && !MASK_BY_ROW
uint of_columns[BLOCKS * 2u];  // the mask of this lane's columns, if it is the same for all rows: fp16 pairs

// Prefetches the mask before Q K^T, to hide its latency.
void fetch_mask(int key) {
  FOR(i, BLOCKS * 2u) {
    vec2 pair;
    FOR(j, 2u) {
      const uint at = min(uint(key) + i / 2u * 16u + COLUMN_OF(i % 2u * 2u + j), last_masked());
      pair[j] = mask_at(mask_index(seen.image, seen.head, 0u, at));
    }
    of_columns[i] = packHalf2x16(pair);
  }
}
#endif

// Applies scale, mask and visible range to the scores. is_limited = false: all keys of the iteration are visible to all rows.
void limit_scores(int key, bool is_limited) {
#if MASKED
  FOR(i, STRIPS * BLOCKS * 8u) scores[i] = scaled(scores[i]);
  FOR(b, STRIPS * BLOCKS) FOR(i, 8u) {
#if MASK_BY_ROW
    const uint at = min(uint(key) + b % BLOCKS * 16u + COLUMN_OF(i), last_masked());
    const float added = mask_at(mask_index(seen.image, seen.head, row[b / BLOCKS][HALF_OF(i)], at));
#else
    const float added = unpackHalf2x16(of_columns[b % BLOCKS * 2u + (i >> 1 & 1u)])[i & 1u];
#endif
    scores[b * 8u + i] = masked(scores[b * 8u + i], added);
  }
#elif BY_SCORE
  FOR(i, STRIPS * BLOCKS * 8u) scores[i] = scaled(scores[i]);
#endif
  if (is_limited && (key < seen.all.x || key + int(KEYS) > seen.all.y))
    FOR(b, STRIPS * BLOCKS) FOR(i, 8u) {
      const int at = key + int(b % BLOCKS * 16u + COLUMN_OF(i));
      const ivec2 own = sees[b / BLOCKS * 2u + HALF_OF(i)];
      if (at < own.x || at >= min(own.y, seen.end)) scores[b * 8u + i] = minus_infinity;
    }
}

// Online softmax of a row tile: rescales the running sum and the accumulators to the new maximum; scores become probabilities.
void weigh(uint s) {
  const float unit = seen.unit;
  vec2 now = largest[s];
  FOR(j, BLOCKS) {  // max over groups of four, to shorten the dependency chain
    const uint at = (s * BLOCKS + j) * 8u;
    FOR(h, 2u)
      now[h] = max(now[h], max(max(scores[at + h * 4u], scores[at + h * 4u + 1u]), max(scores[at + h * 4u + 2u], scores[at + h * 4u + 3u])));
  }
  now = largest_of_row(now);
  const vec2 reference = vec2(reference_of(now.x), reference_of(now.y));
  const vec2 factor = vec2(POWER(largest[s].x, reference.x, unit), POWER(largest[s].y, reference.y, unit));
  largest[s] = now;
  sum[s] *= factor;
  FOR(j, V_STEPS) FOR(i, 8u) sums[s * V_STEPS + j][i] *= factor[HALF_OF(i)];
  FOR(i, BLOCKS * 8u) {
    const uint at = s * BLOCKS * 8u + i;
    scores[at] = POWER(scores[at], reference[HALF_OF(i % 8u)], unit);
    sum[s][HALF_OF(i % 8u)] += scores[at];
  }
}

void multiply_values(uint stage) {
  FOR(step, BLOCKS) {
    LEFT(weights[STRIPS]);
    FOR(s, STRIPS) FOR(i, 8u) weights[s][i] = AS_ELEMENT(scores[(s * BLOCKS + step) * 8u + i]);
    FOR(j, V_STEPS) {
      RIGHT(values);
      LOAD_VALUES(values, stage + step * 16u * ROW_V + j * 2u, ROW_V);
      FOR(s, STRIPS) MULTIPLY_ADD(weights[s], values, sums[s * V_STEPS + j]);
    }
  }
}

uint stage = 0u;  // shared memory buffer of this iteration
// With two row tiles there are too few registers for it, unless the loop has no branches.
const bool HAS_ZEROS = STRIPS == 1u || TURNS == ALL_WHOLE;

// Returns zero, but reads it from shared memory after the barrier, so that the driver cannot hoist the prefetch above it. The prefetched
// tile then reuses the registers of the tile just stored. A hoisted prefetch needs twice the registers and copies them in every iteration.
int zero_of_turn() { return HAS_ZEROS ? int(staged[stage + EIGHTS_K].x) : 0; }

// Main-loop iteration: processes the keys from `first` on and prefetches the next tile.
void take_turn(uint at_k, uint at_v, int first, bool is_limited) {
  store_k(stage);
  store_v(stage + FIRST_V);
  barrier();
  const int next = first + int(STRETCH) + zero_of_turn(), key = first + int(SHARE * KEYS);
  fetch_k(at_k, p.k_row, next, seen.end);
  fetch_v(at_v, p.v_row, next, seen.end);
#if EMULATED
  const bool takes = true;
#else
  const bool takes = !is_limited || (key < seen.any.y && key + int(KEYS) > seen.any.x);
#endif
  if (takes) {
#if MASKED && !MASK_BY_ROW
    fetch_mask(key);
#endif
    multiply_keys(stage + SHARE * KEYS * ROW_K);
    limit_scores(key, is_limited);
    FOR(s, STRIPS) weigh(s);
    multiply_values(stage + FIRST_V + SHARE * KEYS * ROW_V);
  }
  if (BUFFERS == 1u)
    barrier();  // wait until no subgroup is still reading K and V
  else
    stage = BUFFER - stage;
}

// Main loop from `begin` on. WHOLE_FIRST runs unmasked iterations in a specialised loop, which has no branch and no register copies after
// it. Not done with EMULATED: drivers take minutes to compile twice as many barriers.
void take_keys(uint at_k, uint at_v, int begin) {
  const int end = seen.end, step = int(STRETCH);
  int first = begin;
#if TURNS == WHOLE_FIRST && !EMULATED
  for (; first >= seen.whole.x && first + step <= seen.whole.y; first += step) take_turn(at_k, at_v, first, false);
#endif
  for (; first < end; first += step) take_turn(at_k, at_v, first, TURNS != ALL_WHOLE);
  if (BUFFERS > 1u) barrier();  // the output staging reuses the K and V buffers
}

// Reduces the partial results of split-K subgroups into the first.
void meet() {
  if (SHARES == 1u) return;
  FOR(s, STRIPS) {
    const uint first = ((SHARE * TEAMS + TEAM - TEAMS) * STRIPS + s) * (V_STEPS * 2u + 1u) * kLanes + LANE;
    if (SHARE > 0u) staged[first] = floatBitsToUint(vec4(largest[s], sum[s]));
    FOR(j, V_STEPS * 2u) {
      const vec4 four = FOUR_SUMS(sums[s * V_STEPS + j / 2u], j % 2u * 4u);
      if (SHARE > 0u) staged[first + (j + 1u) * kLanes] = floatBitsToUint(four);
    }
  }
  barrier();  // partial results have been stored
  FOR(share, SHARES - 1u) FOR(s, STRIPS) {
    const uint first = ((share * TEAMS + TEAM) * STRIPS + s) * (V_STEPS * 2u + 1u) * kLanes + LANE;
    const vec4 other = uintBitsToFloat(staged[first]);
    const vec2 now = max(largest[s], other.xy), reference = vec2(reference_of(now.x), reference_of(now.y));
    const vec2 kept = vec2(POWER(largest[s].x, reference.x, seen.unit), POWER(largest[s].y, reference.y, seen.unit));
    const vec2 added = vec2(POWER(other.x, reference.x, seen.unit), POWER(other.y, reference.y, seen.unit));
    largest[s] = now;
    sum[s] = sum[s] * kept + other.zw * added;
    FOR(j, V_STEPS * 2u) {
      const vec4 four = uintBitsToFloat(staged[first + (j + 1u) * kLanes]);
      FOR(i, 4u) {
        const uint at = j % 2u * 4u + i;
        sums[s * V_STEPS + j / 2u][at] = sums[s * V_STEPS + j / 2u][at] * kept[HALF_OF(at)] + four[i] * added[HALF_OF(at)];
      }
    }
  }
  barrier();  // partial results have been read; the output staging reuses the memory
}

// Stores the output of a row tile, OUT_STEPS fragments at a time; adjacent lanes store adjacent columns.
void store_strip(uint s, uint first_row, uint last_row) {
  const uint strip = SUBGROUP_NUMBER * 16u * ROW_OUT;
  const vec2 all = sum_of_row(sum[s]);
#if !PARTS
  const vec2 share = vec2(share_of(all.x), share_of(all.y));
  FOR(j, V_STEPS) FOR(i, 8u) sums[s * V_STEPS + j][i] *= share[HALF_OF(i)];
#endif
  FOR(part, V_STEPS / OUT_STEPS) {
    FOR(j, OUT_STEPS) STORE_SUMS(sums[s * V_STEPS + part * OUT_STEPS + j], strip + j * 4u, ROW_OUT);
    SUBGROUP_MEETS();
    for (uint n = LANE; n < 16u * OUT_FOURS; n += kLanes) {
      const uint out_row = first_row + n / OUT_FOURS, four = n % OUT_FOURS;
      if (out_row <= last_row && SHARE == 0u)
        store_four(first_y(seen.image, seen.head, out_row), (part * OUT_FOURS + four) * 4u,
                   uintBitsToFloat(staged[strip + n / OUT_FOURS * ROW_OUT + four]), 1.0);
    }
    SUBGROUP_MEETS();
  }
#if PARTS
#if !MASKED
  const vec2 own_score = largest[s] * (seen.unit / kPowersOfTwo);
#else
  const vec2 own_score = largest[s];
#endif
  FOR(i, 2u)
    if (LANE % 4u == 0u && SHARE == 0u && first_row + LANE / 4u + i * 8u <= last_row)
      store_terms(first_y(seen.image, seen.head, first_row + LANE / 4u + i * 8u), own_score[i], all[i]);
#endif
}

void main() {
  const uvec2 place = place_of_group();
  const uint image = place.x / p.heads, head = place.x % p.heads, first_row = place.y * ROWS;
  const uint last_row = min(first_row + ROWS, p.rows) - 1u;
#if PARTS
  const ivec2 own_part = ivec2(grid_group().z * p.stretch, (grid_group().z + 1u) * p.stretch);
#else
  const ivec2 own_part = ivec2(0, 0x7fffffff);
#endif
  const int begin = max(seen_keys(image, first_row).x, own_part.x), end = min(seen_keys(image, last_row).y, own_part.y);
  const uint own_first = first_row + TEAM * OWN_ROWS;
  const ivec2 seen_first = seen_keys(image, min(own_first, last_row));
  const ivec2 seen_last = seen_keys(image, min(own_first + OWN_ROWS - 1u, last_row));
  seen.image = image, seen.head = head, seen.end = end;
  seen.whole = ivec2(seen_keys(image, last_row).x, min(seen_keys(image, first_row).y, end));
  seen.all = ivec2(seen_last.x, min(seen_first.y, end)), seen.any = ivec2(seen_first.x, min(seen_last.y, end));
#if MASKED
  seen.unit = 1.0;
#elif BY_SCORE
  seen.unit = kPowersOfTwo;
#else
  seen.unit = p.scale * kPowersOfTwo;
#endif
  FOR(s, STRIPS) {
    row[s] = min(uvec2(own_first + s * 16u + LANE / 4u) + uvec2(0u, 8u), uvec2(last_row));
    sees[s * 2u] = seen_keys(image, row[s].x), sees[s * 2u + 1u] = seen_keys(image, row[s].y);
    largest[s] = vec2(minus_infinity), sum[s] = vec2(0.0);
  }
  FOR(i, STRIPS * V_STEPS) SET_SUMS(sums[i], 0.0);
  const uint at_k = first_k(image, head), at_v = first_v(image, head);
  load_queries(first_q(image, head, 0u), first_row, at_k, at_v, begin, end);
  take_keys(at_k, at_v, begin);
  meet();
  FOR(s, STRIPS) store_strip(s, own_first + s * 16u, last_row);
}
