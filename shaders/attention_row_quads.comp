// Attention of a few rows that share keys and values, up to sixteen of them in a workgroup, on matrix units whose components lie as
// fragments.glsl says. The time goes into reading keys and values, so nothing stands between memory and the units: an invocation loads
// sixteen bytes at a time and has in them what it multiplies. Which elements of a head a step of a product takes is of no matter to its
// sum, so it takes those that lie together. Rows are the left operand of their scores and keys the right one; weights then lie as the right
// operand of the values needs them, whose results stand with their columns down. A subgroup has BLOCKS times sixteen keys at a time; those
// of a workgroup take turns. The keys that rows see are cut into parts, as many as the grid has workgroups on its third axis or fewer, and
// the workgroup that is the last of them to finish puts them together. QUERIES_SHARED: rows are read from shared memory for each product,
// where they would take too many registers. INT8: eight elements of a key or value are eight bytes, and a pair that the units take is made of
// every other byte of a word, in queries as well; keys' scales go into the scores, values' into the values. NARROW: there are at most eight
// rows, and units of eight columns have the sums of values, in half of the registers; 2: units of eight columns have the scores too, whose
// left operand are the keys then, so that queries take half of the registers, and which change places among invocations to be weights.
// RESET_LAST: the counter of a meeting becomes zero behind the results, so that nothing waits for it. ORDERED_COUNT: counting orders what was
// stored before it and is read behind it, in place of two fences. TOUCHED: the counter is in the device's cache before keys are read, which
// have it thrown out of there by the time that it is needed where nobody asks for it. INTERLEAVED: the turns of all parts take turns, so that
// what workgroups read at a time lies together, and parts differ by one turn at most. These are measured alone (tests/benchmarks/attention_row_ways.py).
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
#ifndef NARROW
#define NARROW 0
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
const uint LOWER = NARROW > 0 ? 2u : 4u, SUMMED = LOWER * 2u;              // the first component of a tile's lower half; components
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
// Of the key and of the value that have the invocation's number among those of all blocks, which are two at most.
float held_k_scale, held_v_scale;
#endif
float scores[BLOCKS * kComponents];  // and then weights
vec2 largest, sum;                   // of the invocation's two rows: the largest score and the sum of weights so far
#if QUERIES_SHARED
shared uvec4 shared_queries[K_STEPS * HALVES * kLanes];
#elif NARROW == 2
RIGHT_NARROW_OF(queries, K_STEPS * 2u);
#else
LEFT(queries[K_STEPS * 2u]);
#endif
#if NARROW
NARROW_SUMS_OF(sums, TILES);
#else
SUMS_OF(sums, TILES);
#endif

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
#elif NARROW == 2
    SET_NARROW(queries[step * 2u], PAIR(a.x), PAIR(a.y))
    SET_NARROW(queries[step * 2u + 1u], PAIR(a.z), PAIR(a.w))
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

#if NARROW == 2
#define KEYS_OF(name) LEFT(name)
#define SCORES(name) NARROW_SUMS(name)
#define SCORE(rows, keys, scores) MULTIPLY_ADD_NARROW(keys, rows, scores)
#define ROWS_OF(name) RIGHT_NARROW(name)
#define SET_ROWS(matrix, line_a, line_b, other_a, other_b) SET_NARROW(matrix, line_a, line_b)
#else
#define KEYS_OF(name) RIGHT(name)
#define SCORES(name) SUMS(name)
#define SCORE(rows, keys, scores) MULTIPLY_ADD(rows, keys, scores)
#define ROWS_OF(name) LEFT(name)
#define SET_ROWS(matrix, line_a, line_b, other_a, other_b) SET_COMPONENTS(matrix, line_a, line_b, other_a, other_b)
#endif

// The products of the rows with the sixteen keys of a block.
void multiply_keys(uint block) {
  SCORES(products);
  FOR(step, K_STEPS) {
    const uint at = (block * K_STEPS + step) * 2u;
    KEYS_OF(low);
    KEYS_OF(high);
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
    ROWS_OF(rows);
    SET_ROWS(rows, PAIR(row_a.x), PAIR(row_a.y), PAIR(row_b.x), PAIR(row_b.y))
    SCORE(rows, low, products);
    SET_ROWS(rows, PAIR(row_a.z), PAIR(row_a.w), PAIR(row_b.z), PAIR(row_b.w))
    SCORE(rows, high, products);
#else
    SCORE(queries[step * 2u], low, products);
    SCORE(queries[step * 2u + 1u], high, products);
#endif
  }
#if NARROW == 2
  // An invocation has products of two rows with two keys, and needs those of one row with four.
  vec4 placed;
  FOR(i, kNarrow) {
    const uint lane = (LANE % 4u * 2u + i % 2u) * 4u + LANE / 8u;
    const float even = FROM_LANE(products[i / 2u * 2u], lane), odd = FROM_LANE(products[i / 2u * 2u + 1u], lane);
    placed[i] = LANE / 4u % 2u == 0u ? even : odd;
  }
#else
#define placed products
#endif
#if INT8
  const vec4 scales = scales_of_block(held_k_scale, block);
  FOR(i, SCORED) scores[block * kComponents + i] = placed[i] * scales[i % 4u];
#else
  FOR(i, SCORED) scores[block * kComponents + i] = placed[i];
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
#if NARROW
  RIGHT_NARROW(shares);
  FOR(i, kNarrow) shares[i] = AS_ELEMENT(scores[block * kComponents + i]);
#else
  RIGHT(shares);
  FOR(i, kComponents) shares[i] = i < SCORED ? AS_ELEMENT(scores[block * kComponents + i]) : AS_ELEMENT(0.0);
#endif
#if INT8
  const vec4 scales = scales_of_block(held_v_scale, block);
#endif
  FOR(step, V_STEPS) FOR(word, 4u) {
    const uint first = (block * V_STEPS + step) * 4u, tile = step * 4u + word;
    const Pair a = PAIR_OF_VALUES(0u), b = PAIR_OF_VALUES(1u), c = PAIR_OF_VALUES(2u), d = PAIR_OF_VALUES(3u);
    LEFT(values);
    SET_COMPONENTS(values, Pair(a.x, b.x), Pair(c.x, d.x), Pair(a.y, b.y), Pair(c.y, d.y))
#if NARROW
    MULTIPLY_ADD_NARROW(values, shares, sums[tile]);
#else
    MULTIPLY_ADD(values, shares, sums[tile]);
#endif
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

#include "include/row_meeting.glsl"

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
      const vec2 low = vec2(sums[tile][component], sums[tile][component + LOWER]);
      const vec2 high = vec2(sums[tile + 1u][component], sums[tile + 1u][component + LOWER]);
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
  bool by_score;
};

Seen seen;

// Brings the scores of a turn's keys to what weigh() takes.
void limit_scores(int key) {
#if MASKED
  FOR(b, BLOCKS) FOR(i, SCORED) {
    const uint at = min(uint(key) + b * 16u + COLUMN_OF(i), max(p.keys, 1u) - 1u);
    const uvec2 place = i < 4u ? seen.place_a : seen.place_b;
    scores[b * kComponents + i] = score_of(seen.image, place.x, place.y, at, scores[b * kComponents + i]);
  }
#else
  if (seen.by_score) FOR(b, BLOCKS) FOR(i, SCORED) scores[b * kComponents + i] = scaled(scores[b * kComponents + i]);
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
    FOR(tile, TILES) sums[tile][component] *= kept, sums[tile][component + LOWER] *= kept;
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
#if INTERLEAVED
  const uint count = clamp((keys + turn - 1u) / turn, 1u, grid_size().z), part = grid_group().z;
  if (part >= count) return;
  const int begin = seen_first.x + int(part * turn), end = seen_last.y;
#else
  const uint stretch = max((keys + grid_size().z * turn - 1u) / (grid_size().z * turn), 1u) * turn;
  const uint count = max((keys + stretch - 1u) / stretch, 1u), part = grid_group().z;
  if (part >= count) return;
  const int begin = seen_first.x + int(part * stretch), end = min(begin + int(stretch), seen_last.y);
#endif
  seen.image = image, seen.end = end, seen.all = ivec2(seen_last.x, min(seen_first.y, end));
  seen.at_k = first_k(image, kv_head * p.group), seen.at_v = first_v(image, kv_head * p.group);
  seen.place_a = place_of(LANE / 4u, kv_head), seen.place_b = place_of(LANE / 4u + 8u, kv_head);
  seen.row_a = seen_keys(image, seen.place_a.y), seen.row_b = seen_keys(image, seen.place_b.y);
#if MASKED
  seen.unit = kPowersOfTwo;
#else
  // A scale that does not keep the order of scores, or is too small for a unit, and a cap are applied to each score.
  seen.by_score = !(p.scale > 1e-30) || p.softcap != 0.0;
  seen.unit = seen.by_score ? kPowersOfTwo : p.scale * kPowersOfTwo;
#endif
  largest = vec2(minus_infinity), sum = vec2(0.0);
  FOR(tile, TILES) FOR(i, SUMMED) sums[tile][i] = 0.0;
  int key = begin + int(SUBGROUP_NUMBER * KEYS);
  if (begin < end) {
    load_keys(seen.at_k, key, end);
    load_values(seen.at_v, key, end);
  }
  load_queries(image, kv_head);
#if MEETS && TOUCHED
  touch_counter();
#endif
  // Subgroups of emulated units wait for each other, so that none of them is done before the others.
#if EMULATED
  const int own = int(SUBGROUP_NUMBER * KEYS);
#else
  const int own = 0;
#endif
#if INTERLEAVED
  const int step = int(turn * count);
#else
  const int step = int(turn);
#endif
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
