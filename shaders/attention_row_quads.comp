// Decode attention on cooperative matrices in the layout of include/fragments.glsl, for up to 16 queries that share K and V (grouped
// queries included). It is memory-bound, so K and V go from memory to registers without shared memory. See include/attention.glsl for
// buffers.
//
// Workgroup (x, y, z) = (ROWS queries, K/V head of a batch item, split of the keys in use). Each subgroup has BLOCKS * 16 keys per
// iteration; the subgroups of a workgroup alternate. A 16-byte load is used as is: a sum over K does not depend on the order, so an
// invocation assigns its contiguous elements to the positions of its fragment. Queries are A and keys B; probabilities are then the B
// operand of the transposed product V^T P^T.
//   load K, V; load Q fragments (QUERIES_SHARED: kept in shared memory, for long heads)
//   for each tile of keys:
//     S = Q K^T; prefetch the next K; mask; online softmax
//     acc^T = acc^T * factor + V^T P^T; prefetch the next V
//   reduce over subgroups; store, or write the partial result; the last workgroup of a row merges them (MEETS)
// parts (MEETS): vec4 [row tile][split][ROWS][V_SIZE / 4 + 1], the last with the score maximum and the sum. INT8: K and V are bytes with
// one scale per row of a head. A packed pair takes every other byte of a word, and the queries are reordered to match; K scales multiply
// the scores, V scales the values.
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
layout(constant_id = 3) const uint ROWS = 4u;         // of all heads that share keys: at most sixteen
layout(constant_id = 4) const uint BLOCKS = 1u;       // of sixteen keys
#include "include/fragments.glsl"

const uint SUBGROUPS = INVOCATIONS / kLanes, KEYS = BLOCKS * 16u;
const uint K_STEPS = (SIZE + 31u) / 32u, V_STEPS = (V_SIZE + 63u) / 64u;  // of four eights, and of eight
const uint SCORED = ROWS > 8u ? 8u : 4u;                                   // components of scores that are of rows
const uint HALVES = SCORED / 4u;                                           // of the sixteen rows
const uint TILES = V_STEPS * 4u;                                           // of results, sixteen columns of each
const uint FOURS = (V_SIZE + 3u) / 4u, PART = FOURS + 1u;                  // of a row; and of its part, with its terms
const uint ITEMS = ROWS * FOURS, MERGED = SUBGROUPS * ITEMS;               // fours of all rows, and those that all subgroups have of them
const uint SPREAD = INVOCATIONS > ITEMS ? INVOCATIONS / ITEMS : 1u;        // invocations that share the parts of a four
// The results of a row, whose terms lie once, are those of one subgroup, which puts the parts of them together and waits for no other.
const bool APART = kLanes % FOURS == 0u;
const uint AT_ONCE = 16u;               // parts that an invocation reads at once
const float kHeadroom = 4096.0;         // weights are so many times larger than exponentials: small ones stay whole as halves
const float kPowersOfTwo = 1.44269504;  // of two, in a power of e: log2(e)

shared vec4 meeting[MERGED > INVOCATIONS ? MERGED : INVOCATIONS];
shared vec2 met_terms[INVOCATIONS];
shared bool is_last;

const uint HELD_K = BLOCKS * K_STEPS * 2u, HELD_V = BLOCKS * V_STEPS * 4u;  // of a turn
K_TYPE held_k[HELD_K], held_v[HELD_V];
#if INT8
// The scales of one key and of one value. These have the invocation's number among the keys of all blocks, which are two blocks at most.
float held_k_scale, held_v_scale;
#endif
float scores[BLOCKS * kComponents];  // and then weights
vec2 largest, sum;                   // of the invocation's two rows: the largest score and the sum of weights so far
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

// Exponentials of scores relative to a reference; see attention_quads.comp.
#if MASKED
#define POWER(score, reference, unit) exp((score) - (reference))
#else
#define POWER(score, reference, unit) exp2(fma(score, unit, -(reference) * (unit)))
#endif

// Whether there is an r-th row of the workgroup's.
bool has_row(uint r) { return r < ROWS && grid_group().x * ROWS + r < p.group * p.rows; }

// The head of q and the row in it that are the workgroup's r-th of those that share keys.
uvec2 place_of(uint r, uint kv_head) {
  const uint row = min(grid_group().x * ROWS + min(r, ROWS - 1u), p.group * p.rows - 1u);
  return uvec2(kv_head * p.group + row / p.rows, row % p.rows);
}

uvec4 or_zeros(uvec4 words, bool inside) { return inside ? words : uvec4(0u); }

#if INT8
// The scales of the four keys or values of a block that an invocation has scores of.
vec4 scales_of_block(float held, uint block) {
  const uint first = block * 16u + LANE % 4u * 2u;
  return vec4(FROM_LANE(held, first), FROM_LANE(held, first + 1u), FROM_LANE(held, first + 8u), FROM_LANE(held, first + 9u));
}

// Bytes 0 and 2 of a word as two elements: a half of 1024 and more has whole numbers as its last bits.
Pair pair_of(uint word) { return PAIR((word & 0x00ff00ffu) ^ 0x64806480u) - Pair(1152.0); }

// Pairs of neighbours as pairs of every other one, as those of keys are.
uvec4 regrouped(uvec4 words) {
  const uvec2 low = words.xz & 0xffffu | words.yw << 16, high = words.xz >> 16 | words.yw & 0xffff0000u;
  return uvec4(low.x, high.x, low.y, high.y);
}
#else
#define regrouped(words) (words)
#endif

// The rows as left operands; those past the last are zeros.
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
  barrier();  // the rows are there
#endif
}

// The loads have no branch: past the last key the last one is loaded, and past the elements of a head its last ones.
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

// The products of the rows with the sixteen keys of a block.
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

// Adds the values of a block's keys, by their weights.
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

// Four invocations share a row: the largest number and the sum of all that they have.
vec2 largest_of_row(vec2 v) {
  v = max(v, vec2(FROM_OTHER(v.x, 1u), FROM_OTHER(v.y, 1u)));
  return max(v, vec2(FROM_OTHER(v.x, 2u), FROM_OTHER(v.y, 2u)));
}

vec2 sum_of_row(vec2 v) {
  v += vec2(FROM_OTHER(v.x, 1u), FROM_OTHER(v.y, 1u));
  return v + vec2(FROM_OTHER(v.x, 2u), FROM_OTHER(v.y, 2u));
}

// Four results, or a part of them: the sums of values, and of weights, that are relative to the largest score.
struct Four {
  vec4 sums;
  float largest, sum;
};

Four none() { return Four(vec4(0.0), minus_infinity, 0.0); }

// Puts `count` of them together that lie in shared memory, `stride` apart from `first` on; their terms lie from `first_term` on.
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
// The number of the workgroup's rows among all workgroups'.
uint number_of_rows() { return grid_group().y * grid_size().x + grid_group().x; }

uint place_of_part(uint part) { return (number_of_rows() * grid_size().z + part) * ROWS * PART; }

// The parts first, first + step, ... below `count` of an item. Several are read before the first of them is needed.
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

// The same as meet() of a subgroup's own results. FROM_LANE of an emulated subgroup waits for the whole workgroup.
void meet_apart(uint image, uint kv_head, uint count) {
#if EMULATED
  barrier();  // this subgroup's part is there
#else
  if (SUBGROUP_NUMBER * kLanes >= ITEMS) return;
  subgroupBarrier();  // this subgroup's part is there
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

// Puts the parts of the rows together, where no other workgroup has a part of them still to finish.
void meet(uint image, uint kv_head, uint count) {
  memoryBarrierBuffer();
  barrier();  // this workgroup's part is there
  if (gl_LocalInvocationIndex == 0u) {
    memoryBarrierBuffer();  // barrier() orders shared memory alone
    is_last = atomicAdd(finished[number_of_rows()], 1u) + 1u == count;
    if (is_last) atomicExchange(finished[number_of_rows()], 0u);
  }
  barrier();  // all know whether it was the last
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
      barrier();  // what all of them have of the parts is there
      whole = met(item, item, ITEMS, ITEMS, SPREAD);
    }
    if (share == 0u && item < ITEMS) store_whole(item, image, kv_head, whole);
  }
}
#endif

// A subgroup stores the largest scores, the sums and the results of its keys to shared memory.
void store_own(vec2 largest, vec2 sum, float unit) {
  FOR(h, ROWS > 8u ? 2u : 1u) {
    const uint r = LANE / 4u + h * 8u;
    // The largest score is told in powers of e.
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

// What an invocation's two rows see, and the part of the keys that the workgroup has.
struct Seen {
  uint image, at_k, at_v;      // at_k, at_v: where the head's keys and values begin
  int end;                     // of the part
  ivec2 all, row_a, row_b;     // keys that all rows see, and those that each of the two does
  uvec2 place_a, place_b;
  float unit;                  // of scores as powers of two
};

Seen seen;

// Brings the scores of a turn's keys to what weigh() takes.
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

// Makes weights of the scores, relative to the largest ones so far, and the sums before relative to those too.
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

// Whether a turn reads the keys of the next one where there is none. SPARED: it does not, at the price of a branch; a subgroup that reads
// waits for what it has read before its registers serve for what comes behind the last turn.
#if SPARED
#define IS_READ(next) ((next) < seen.end)
#else
#define IS_READ(next) true
#endif

// Adds the keys of one turn, from `key` on, and reads those of the next one, from `next` on, as soon as these have been taken.
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
  // The keys that any row sees and that all see, and those of this workgroup's part.
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
  // Subgroups of emulated units wait for each other, so that none of them is done before the others.
#if EMULATED
  const int own = int(SUBGROUP_NUMBER * KEYS);
#else
  const int own = 0;
#endif
  const int step = int(turn);
  for (; key - own < end; key += step) take(key, key + step);
  sum = sum_of_row(sum);
  store_own(largest, sum, seen.unit);
  barrier();  // what the subgroups have is there
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
