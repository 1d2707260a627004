// Decode attention on cooperative matrices in the layout of include/mma.glsl, for up to 16 queries that share K and V (grouped
// queries included). It is memory-bound, so K and V go from memory to registers without shared memory. See include/attention.glsl for
// buffers.
//
// Workgroup (x, y, z) = (ROWS queries, K/V head of a batch item, split of the keys in use). Each subgroup processes BLOCKS * 16 keys per
// iteration; the subgroups of a workgroup take turns. A 16-byte load is used as is: a sum over K does not depend on the order, so an
// invocation assigns its contiguous elements to the positions of its fragment. Queries are A and keys B; probabilities are then the B
// operand of the transposed product V^T P^T.
//   load K, V; load Q fragments (QUERIES_SHARED: kept in shared memory, for long heads)
//   for each tile of keys:
//     S = Q K^T; prefetch the next K; mask; online softmax
//     acc^T = acc^T * factor + V^T P^T; prefetch the next V
//   reduce over subgroups; store, or write the partial result; the last workgroup of a row merges them (MEETS)
// parts (MEETS): vec4 [row tile][split][ROWS][V_SIZE / 4 + 1], the last with the score maximum and the sum. INT8: K and V are bytes with
// one scale per row of a head. A packed pair consists of every other byte of a word, and the queries are reordered to match; K scales
// multiply the scores, V scales the values.
//
// Requires the fragment layout (has_fragments) and heads of whole, aligned vec8s, up to 256 elements (128 for more than 8 queries).
// Selected in attention.cpp (few_rows_plan).
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
#define EIGHTS 1
#define FOURS_OF_PARTS 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 256u;
layout(constant_id = 3) const uint ROWS = 4u;         // query rows, including grouped heads: at most 16
layout(constant_id = 4) const uint BLOCKS = 1u;       // blocks of 16 keys per subgroup
#include "include/mma.glsl"

const uint SUBGROUPS = INVOCATIONS / kLanes, KEYS = BLOCKS * 16u;
const uint K_STEPS = (SIZE + 31u) / 32u, V_STEPS = (V_SIZE + 63u) / 64u;  // vec8 loads; 4 lanes per K row, 8 per V row
const uint SCORED = ROWS > 8u ? 8u : 4u;                                   // number of score components that belong to queries
const uint HALVES = SCORED / 4u;                                           // number of 8-row halves in use
const uint TILES = V_STEPS * 4u;                                           // number of output tiles of 16 columns
const uint FOURS = (V_SIZE + 3u) / 4u, PART = FOURS + 1u;                  // vec4s per row, and per partial result with maximum and sum
const uint ITEMS = ROWS * FOURS, MERGED = SUBGROUPS * ITEMS;               // vec4s of all rows, and of all subgroups' partial results
const uint SPREAD = INVOCATIONS > ITEMS ? INVOCATIONS / ITEMS : 1u;        // number of invocations that share the splits of a vec4
// A subgroup covers whole rows, so it merges the splits of its rows without waiting for other subgroups.
const bool APART = kLanes % FOURS == 0u;
const uint AT_ONCE = 16u;               // number of split-K partials loaded at once
const float kHeadroom = 4096.0;         // factor of the probabilities, so that small ones stay normal in fp16
const float kPowersOfTwo = 1.44269504;  // log2(e)

shared vec4 meeting[MERGED > INVOCATIONS ? MERGED : INVOCATIONS];
shared vec2 met_terms[INVOCATIONS];
shared bool is_last;

const uint HELD_K = BLOCKS * K_STEPS * 2u, HELD_V = BLOCKS * V_STEPS * 4u;  // number of K and V vec8s of one iteration
K_TYPE held_k[HELD_K], held_v[HELD_V];
#if INT8
// The scale of one key and one value per lane: lane i has the scales of key i of the (at most two) blocks.
float held_k_scale, held_v_scale;
#endif
float scores[BLOCKS * kComponents];  // scores, then probabilities
vec2 largest, sum;                   // running maximum and sum of this lane's two rows
#if QUERIES_SHARED
shared uvec4 shared_queries[K_STEPS * HALVES * kLanes];
#else
LEFT(queries[K_STEPS * 2u]);
#endif
SUMS_OF(sums, TILES);

#if EMULATED
#define FOR(i, count) for (uint i = 0u; i < (count); ++i)
#else
#define FOR(i, count) [[unroll]] for (uint i = 0u; i < (count); ++i)
#endif

// exp(score - reference); see attention_mma.comp.
#if MASKED
#define POWER(score, reference, unit) exp((score) - (reference))
#else
#define POWER(score, reference, unit) exp2(fma(score, unit, -(reference) * (unit)))
#endif

// Whether the workgroup has a row r.
bool has_row(uint r) { return r < ROWS && grid_group().x * ROWS + r < p.group * p.rows; }

// Returns (query head, query) of row r of the workgroup.
uvec2 place_of(uint r, uint kv_head) {
  const uint row = min(grid_group().x * ROWS + min(r, ROWS - 1u), p.group * p.rows - 1u);
  return uvec2(kv_head * p.group + row / p.rows, row % p.rows);
}

uvec4 or_zeros(uvec4 words, bool inside) { return inside ? words : uvec4(0u); }

#if INT8
// Returns the scales of the four keys of a block in this lane's score columns.
vec4 scales_of_block(float held, uint block) {
  const uint first = block * 16u + LANE % 4u * 2u;
  return vec4(FROM_LANE(held, first), FROM_LANE(held, first + 1u), FROM_LANE(held, first + 8u), FROM_LANE(held, first + 9u));
}

// Converts the signed bytes 0 and 2 of a word to fp16. XOR with 0x80 adds 128 to a signed byte; 0x6400 | u is the fp16 value 1024 + u.
Pair pair_of(uint word) { return PAIR((word & 0x00ff00ffu) ^ 0x64806480u) - Pair(1152.0); }

// Reorders pairs of adjacent elements to pairs of every other element, to match pair_of().
uvec4 regrouped(uvec4 words) {
  const uvec2 low = words.xz & 0xffffu | words.yw << 16, high = words.xz >> 16 | words.yw & 0xffff0000u;
  return uvec4(low.x, high.x, low.y, high.y);
}
#else
#define regrouped(words) (words)
#endif

// Loads the queries as A fragments; rows past the last are zero.
void load_queries(uint image, uint kv_head) {
  const uint r = LANE / 4u;
  const uvec2 place_a = place_of(r, kv_head), place_b = place_of(r + 8u, kv_head);
  const uint at_a = first_q(image, place_a.x, place_a.y) / 8u, at_b = first_q(image, place_b.x, place_b.y) / 8u;
  FOR(step, K_STEPS) {
    const uint eight = step * 4u + LANE % 4u, inside = min(eight, SIZE / 8u - 1u);
    const uvec4 a = regrouped(or_zeros(q[at_a + inside], has_row(r) && eight < SIZE / 8u));
    uvec4 b = uvec4(0u);
    if (ROWS > 8u) b = regrouped(or_zeros(q[at_b + inside], has_row(r + 8u) && eight < SIZE / 8u));
#if QUERIES_SHARED
    if (SUBGROUP_NUMBER == 0u) shared_queries[step * HALVES * kLanes + LANE] = a;
    if (SUBGROUP_NUMBER == 0u && ROWS > 8u) shared_queries[(step * HALVES + HALVES - 1u) * kLanes + LANE] = b;
#else
    SET_COMPONENTS(queries[step * 2u], PAIR(a.x), PAIR(a.y), PAIR(b.x), PAIR(b.y))
    SET_COMPONENTS(queries[step * 2u + 1u], PAIR(a.z), PAIR(a.w), PAIR(b.z), PAIR(b.w))
#endif
  }
#if QUERIES_SHARED
  barrier();
#endif
}

// Branch-free loads: keys past the end repeat the last key, elements past the head repeat its last vec8.
void load_keys(uint at, int key, int end) {
  FOR(i, BLOCKS * 2u) {
    const uint row = uint(min(key + int(i * 8u + LANE / 4u), end - 1));
    FOR(step, K_STEPS) {
      const uint eight = step * 4u + LANE % 4u;
      held_k[(i / 2u * K_STEPS + step) * 2u + i % 2u] = k[(at + row * p.k_row) / 8u + min(eight, SIZE / 8u - 1u)];
    }
  }
#if INT8
  held_k_scale = scale_of_k(at + uint(min(key + int(LANE), end - 1)) * p.k_row);
#endif
}

void load_values(uint at, int key, int end) {
  FOR(i, BLOCKS * 4u) {
    const uint row = uint(min(key + int(i / 4u * 16u + LANE % 4u * 2u + i % 2u + i % 4u / 2u * 8u), end - 1));
    FOR(step, V_STEPS) {
      const uint eight = min(step * 8u + LANE / 4u, V_SIZE / 8u - 1u);
      held_v[(i / 4u * V_STEPS + step) * 4u + i % 4u] = v[(at + row * p.v_row) / 8u + eight];
    }
  }
#if INT8
  held_v_scale = scale_of_v(at + uint(min(key + int(LANE), end - 1)) * p.v_row);
#endif
}

// S = Q K^T for a block of 16 keys.
void multiply_keys(uint block) {
  SUMS(products);
  FOR(step, K_STEPS) {
    const uint at = (block * K_STEPS + step) * 2u;
    RIGHT(low);
    RIGHT(high);
#if INT8
    const uvec2 a = held_k[at], b = held_k[at + 1u];
    SET_COMPONENTS(low, pair_of(a.x), pair_of(a.x >> 8), pair_of(b.x), pair_of(b.x >> 8))
    SET_COMPONENTS(high, pair_of(a.y), pair_of(a.y >> 8), pair_of(b.y), pair_of(b.y >> 8))
#else
    const bool inside = SIZE % 32u == 0u || step * 4u + LANE % 4u < SIZE / 8u;
    const uvec4 a = or_zeros(held_k[at], inside), b = or_zeros(held_k[at + 1u], inside);
    SET_COMPONENTS(low, PAIR(a.x), PAIR(a.y), PAIR(b.x), PAIR(b.y))
    SET_COMPONENTS(high, PAIR(a.z), PAIR(a.w), PAIR(b.z), PAIR(b.w))
#endif
#if QUERIES_SHARED
    const uvec4 row_a = shared_queries[step * HALVES * kLanes + LANE];
    uvec4 row_b = uvec4(0u);
    if (ROWS > 8u) row_b = shared_queries[(step * HALVES + HALVES - 1u) * kLanes + LANE];
    LEFT(left);
    SET_COMPONENTS(left, PAIR(row_a.x), PAIR(row_a.y), PAIR(row_b.x), PAIR(row_b.y))
    MULTIPLY_ADD(left, low, products);
    SET_COMPONENTS(left, PAIR(row_a.z), PAIR(row_a.w), PAIR(row_b.z), PAIR(row_b.w))
    MULTIPLY_ADD(left, high, products);
#else
    MULTIPLY_ADD(queries[step * 2u], low, products);
    MULTIPLY_ADD(queries[step * 2u + 1u], high, products);
#endif
  }
#if INT8
  const vec4 scales = scales_of_block(held_k_scale, block);
  FOR(i, SCORED) scores[block * kComponents + i] = products[i] * scales[i % 4u];
#else
  FOR(i, SCORED) scores[block * kComponents + i] = products[i];
#endif
}

#if INT8
#define PAIR_OF_VALUES(i) \
  (pair_of(held_v[first + (i)][word / 2u] >> word % 2u * 8u) * Pair(AS_ELEMENT(scales[i])))
#else
#define PAIR_OF_VALUES(i) PAIR(held_v[first + (i)][word])
#endif

// acc^T += V^T P^T for a block.
void multiply_values(uint block) {
  RIGHT(shares);
  FOR(i, kComponents) shares[i] = i < SCORED ? AS_ELEMENT(scores[block * kComponents + i]) : AS_ELEMENT(0.0);
#if INT8
  const vec4 scales = scales_of_block(held_v_scale, block);
#endif
  FOR(step, V_STEPS) FOR(word, 4u) {
    const uint first = (block * V_STEPS + step) * 4u, tile = step * 4u + word;
    const Pair a = PAIR_OF_VALUES(0u), b = PAIR_OF_VALUES(1u), c = PAIR_OF_VALUES(2u), d = PAIR_OF_VALUES(3u);
    LEFT(values);
    SET_COMPONENTS(values, Pair(a.x, b.x), Pair(c.x, d.x), Pair(a.y, b.y), Pair(c.y, d.y))
    MULTIPLY_ADD(values, shares, sums[tile]);
  }
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

// Four outputs, unnormalised, with the maximum and the sum of exponentials.
struct Four {
  vec4 sums;
  float largest, sum;
};

Four none() { return Four(vec4(0.0), minus_infinity, 0.0); }

// Merges `count` partial results in shared memory. They are `stride` apart from `first` on; their maxima and sums start at `first_term`.
Four met(uint first, uint first_term, uint stride, uint term_stride, uint count) {
  Four whole = none();
  FOR(i, count) whole.largest = max(whole.largest, met_terms[first_term + i * term_stride].x);
  FOR(i, count) {
    const vec2 terms = met_terms[first_term + i * term_stride];
    const float factor = exp(terms.x - reference_of(whole.largest));
    whole.sum += terms.y * factor;
    whole.sums += meeting[first + i * stride] * factor;
  }
  return whole;
}

void store_whole(uint item, uint image, uint kv_head, Four whole) {
  if (!has_row(item / FOURS)) return;
  const uvec2 place = place_of(item / FOURS, kv_head);
  store_results(p.y_offset + image * p.y_batch + place.x * p.y_head + place.y * p.y_row, item % FOURS * 4u, whole.sums, whole.sum);
}

#if MEETS
// Index of the workgroup's row tile.
uint number_of_rows() { return grid_group().y * grid_size().x + grid_group().x; }

uint place_of_part(uint part) { return (number_of_rows() * grid_size().z + part) * ROWS * PART; }

// Merges the splits first, first + step, ... below `count` of an item, with AT_ONCE loads at a time to hide latency.
Four of_parts(uint item, uint first, uint step, uint count) {
  Four whole = none();
  for (uint begin = first; begin < count; begin += step * AT_ONCE) {
    vec4 fours[AT_ONCE];
    vec2 terms[AT_ONCE];
    FOR(i, AT_ONCE) {
      const uint at = place_of_part(min(begin + i * step, count - 1u)) + item / FOURS * PART;
      fours[i] = parts[at + item % FOURS];
      terms[i] = parts[at + FOURS].xy;
    }
    const float before = whole.largest;
    FOR(i, AT_ONCE) {
      if (begin + i * step >= count) terms[i] = vec2(minus_infinity, 0.0);
      whole.largest = max(whole.largest, terms[i].x);
    }
    const float reference = reference_of(whole.largest), kept = exp(before - reference);
    whole.sum *= kept;
    whole.sums *= kept;
    FOR(i, AT_ONCE) {
      const float factor = exp(terms[i].x - reference);
      whole.sum += terms[i].y * factor;
      whole.sums += fours[i] * factor;
    }
  }
  return whole;
}

// Like meet(), for the rows of a single subgroup. With EMULATED, FROM_LANE has a workgroup barrier, so no subgroup may leave early.
void meet_apart(uint image, uint kv_head, uint count) {
#if EMULATED
  barrier();  // this subgroup's partial result has been written
#else
  if (SUBGROUP_NUMBER * kLanes >= ITEMS) return;
  subgroupBarrier();  // this subgroup's partial result has been written
#endif
  memoryBarrierBuffer();
  const uint place = number_of_rows() * SUBGROUPS + SUBGROUP_NUMBER;
  uint before = 0u;
  if (LANE == 0u) before = atomicAdd(finished[place], 1u);
  if (uint(FROM_LANE(float(before), 0u)) + 1u != count) return;
  if (LANE == 0u) atomicExchange(finished[place], 0u);
  memoryBarrierBuffer();
  for (uint item = gl_LocalInvocationIndex; item < ITEMS; item += INVOCATIONS)
    store_whole(item, image, kv_head, of_parts(item, 0u, 1u, count));
}

// Merges the splits of the rows if this workgroup is the last to finish.
void meet(uint image, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // this workgroup's partial result has been written
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders only shared memory
    is_last = atomicAdd(finished[number_of_rows()], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[number_of_rows()], 0u);
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint share = gl_LocalInvocationIndex / ITEMS;
  for (uint base = 0u; base < ITEMS; base += INVOCATIONS) {
    const uint item = base + gl_LocalInvocationIndex % ITEMS;
    Four whole = none();
    if (share < SPREAD && item < ITEMS) whole = of_parts(item, share, SPREAD, count);
    if (SPREAD > 1u) {
      meeting[gl_LocalInvocationIndex] = whole.sums;
      met_terms[gl_LocalInvocationIndex] = vec2(whole.largest, whole.sum);
      barrier();
      whole = met(item, item, ITEMS, ITEMS, SPREAD);
    }
    if (share == 0u && item < ITEMS) store_whole(item, image, kv_head, whole);
  }
}
#endif

// Stores a subgroup's maximum, sum and accumulators to shared memory.
void store_own(vec2 largest, vec2 sum, float unit) {
  FOR(h, ROWS > 8u ? 2u : 1u) {
    const uint r = LANE / 4u + h * 8u;
    // Convert the maximum to base e.
    if (LANE % 4u == 0u && r < ROWS) met_terms[SUBGROUP_NUMBER * ROWS + r] = vec2(largest[h] * (unit / kPowersOfTwo), sum[h]);
  }
  FOR(c, SCORED / 2u) {
    const uint r = LANE % 4u * 2u + (c & 1u) + (c >> 1) * 8u, component = (c & 1u) + (c >> 1) * 2u;
    FOR(step, V_STEPS) FOR(half_eight, 2u) {
      const uint four = (step * 8u + LANE / 4u) * 2u + half_eight, tile = step * 4u + half_eight * 2u;
      const vec2 low = vec2(sums[tile][component], sums[tile][component + 4u]);
      const vec2 high = vec2(sums[tile + 1u][component], sums[tile + 1u][component + 4u]);
#if INT8
      const vec4 four_sums = vec4(low.x, high.x, low.y, high.y);
#else
      const vec4 four_sums = vec4(low, high);
#endif
      if (r < ROWS && four < FOURS) meeting[(SUBGROUP_NUMBER * ROWS + r) * FOURS + four] = four_sums;
    }
  }
}

// Visible key ranges, and the workgroup's split of the keys.
struct Seen {
  uint image, at_k, at_v;      // at_k, at_v: start of the head's K and V
  int end;                     // end of this split
  ivec2 all, row_a, row_b;     // visible keys of all rows, and of this lane's two rows
  uvec2 place_a, place_b;
  float unit;                  // scale * log2(e)
};

Seen seen;

// Applies scale, mask and visible range to the scores.
void limit_scores(int key) {
#if MASKED
  FOR(b, BLOCKS) FOR(i, SCORED) {
    const uint at = uint(key) + b * 16u + COLUMN_OF(i);
    const uvec2 place = i < 4u ? seen.place_a : seen.place_b;
    scores[b * kComponents + i] = score_of(seen.image, place.x, place.y, at, scores[b * kComponents + i]);
  }
#elif BY_SCORE
  FOR(b, BLOCKS) FOR(i, SCORED) scores[b * kComponents + i] = scaled(scores[b * kComponents + i]);
#endif
  if (key < seen.all.x || key + int(KEYS) > seen.all.y)
    FOR(b, BLOCKS) FOR(i, SCORED) {
      const int at = key + int(b * 16u + COLUMN_OF(i));
      const ivec2 sees = i < 4u ? seen.row_a : seen.row_b;
      if (at < sees.x || at >= min(sees.y, seen.end)) scores[b * kComponents + i] = minus_infinity;
    }
}

// Online softmax: rescales the running sum and the accumulators to the new maximum; scores become probabilities.
void weigh() {
  const float unit = seen.unit;
  vec2 now = largest;
  FOR(b, BLOCKS) FOR(i, SCORED) now[i >> 2] = max(now[i >> 2], scores[b * kComponents + i]);
  now = largest_of_row(now);
  const vec2 reference = vec2(reference_of(now.x), reference_of(now.y));
  const vec2 factor = vec2(POWER(largest.x, reference.x, unit), POWER(largest.y, reference.y, unit));
  largest = now;
  sum *= factor;
  FOR(b, BLOCKS) FOR(i, SCORED) {
    const uint at = b * kComponents + i;
    scores[at] = POWER(scores[at], reference[i >> 2], unit) * kHeadroom;
    sum[i >> 2] += scores[at];
  }
  FOR(c, SCORED / 2u) {
    const uint component = (c & 1u) + (c >> 1) * 2u, lane = (LANE % 4u * 2u + (c & 1u)) * 4u;
    const float kept = FROM_LANE(c < 2u ? factor.x : factor.y, lane);
    FOR(tile, TILES) sums[tile][component] *= kept, sums[tile][component + 4u] *= kept;
  }
}

// SPARED skips the prefetch after the last iteration, at the cost of a branch. Without it, the subgroup has to wait for useless loads
// before it can reuse their registers.
#if SPARED
#define IS_READ(next) ((next) < seen.end)
#else
#define IS_READ(next) true
#endif

// Main-loop iteration for the keys from `key` on; prefetches the keys from `next` on as soon as the registers are free.
void take(int key, int next) {
  FOR(b, BLOCKS) multiply_keys(b);
  if (IS_READ(next)) load_keys(seen.at_k, next, seen.end);
  limit_scores(key);
  weigh();
  FOR(b, BLOCKS) multiply_values(b);
  if (IS_READ(next)) load_values(seen.at_v, next, seen.end);
}

void main() {
  const uint kv_heads = p.heads / p.group, image = grid_group().y / kv_heads, kv_head = grid_group().y % kv_heads;
  // The keys visible to any and to all queries, and this workgroup's split of them.
  const ivec2 seen_first = seen_keys(image, 0u), seen_last = seen_keys(image, p.rows - 1u);
  const uint keys = uint(max(seen_last.y - seen_first.x, 0)), turn = SUBGROUPS * KEYS;
  const uint stretch = max((keys + grid_size().z * turn - 1u) / (grid_size().z * turn), 1u) * turn;
  const uint count = max((keys + stretch - 1u) / stretch, 1u), part = grid_group().z;
  if (part >= count) return;
  const int begin = seen_first.x + int(part * stretch), end = min(begin + int(stretch), seen_last.y);
  seen.image = image, seen.end = end, seen.all = ivec2(seen_last.x, min(seen_first.y, end));
  seen.at_k = first_k(image, kv_head * p.group), seen.at_v = first_v(image, kv_head * p.group);
  seen.place_a = place_of(LANE / 4u, kv_head), seen.place_b = place_of(LANE / 4u + 8u, kv_head);
  seen.row_a = seen_keys(image, seen.place_a.y), seen.row_b = seen_keys(image, seen.place_b.y);
#if MASKED || BY_SCORE
  seen.unit = kPowersOfTwo;
#else
  seen.unit = p.scale * kPowersOfTwo;
#endif
  largest = vec2(minus_infinity), sum = vec2(0.0);
  FOR(tile, TILES) FOR(i, kComponents) sums[tile][i] = 0.0;
  int key = begin + int(SUBGROUP_NUMBER * KEYS);
  if (begin < end) {
    load_keys(seen.at_k, key, end);
    load_values(seen.at_v, key, end);
  }
  load_queries(image, kv_head);
  // EMULATED multiplications have workgroup barriers: all subgroups must run the same number of iterations.
#if EMULATED
  const int own = int(SUBGROUP_NUMBER * KEYS);
#else
  const int own = 0;
#endif
  const int step = int(turn);
  for (; key - own < end; key += step) take(key, key + step);
  sum = sum_of_row(sum);
  store_own(largest, sum, seen.unit);
  barrier();
  for (uint item = gl_LocalInvocationIndex; item < ITEMS; item += INVOCATIONS) {
    const Four whole = met(item, item / FOURS, ITEMS, ROWS, SUBGROUPS);
#if MEETS
    if (count > 1u) {
      const uint at = place_of_part(part) + item / FOURS * PART;
      parts[at + item % FOURS] = whole.sums;
      if (item % FOURS == 0u) parts[at + FOURS] = vec4(whole.largest, whole.sum, 0.0, 0.0);
      continue;
    }
#endif
    store_whole(item, image, kv_head, whole);
  }
#if MEETS
  if (count > 1u && APART) meet_apart(image, kv_head, count);
  if (count > 1u && !APART) meet(image, kv_head, count);
#endif
}
