// Attention on matrix units whose components lie where this kernel takes them to lie: of a matrix of 16 by 16, invocation l of a subgroup
// of 32 holds, of the rows l / 4 and l / 4 + 8, the columns l % 4 * 2, the next one, and both of them eight further on; in that order for
// sums as for the left operand. So scores become exponentials, and these the left operand of the values, where they are: in registers.
// Operands are halves, sums of float32. Each subgroup has 16 rows of a head, whose queries stay in its registers; all of them take
// the same KEYS keys and values at a time through shared memory, the next of both on their way in registers.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define EIGHTS 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 128u;
layout(constant_id = 3) const uint KEYS = 32u;

const uint SUBGROUP = 32u, OWN_ROWS = 16u, ROWS = INVOCATIONS / SUBGROUP * OWN_ROWS;
const uint BLOCKS = KEYS / 16u;                                         // matrices of a stretch of keys
const uint STEPS = (SIZE + 15u) / 16u, V_STEPS = (V_SIZE + 15u) / 16u;  // matrices of a head
const uint EIGHTS_K = STEPS * 2u, EIGHTS_V = V_STEPS * 2u;
const uint ROW_K = EIGHTS_K + 1u, ROW_V = EIGHTS_V + 1u;  // one more, so that rows begin in different banks
const uint LOADS_K = (KEYS * EIGHTS_K + INVOCATIONS - 1u) / INVOCATIONS, LOADS_V = (KEYS * EIGHTS_V + INVOCATIONS - 1u) / INVOCATIONS;
const uint FIRST_V = KEYS * ROW_K, STAGED = FIRST_V + KEYS * ROW_V;
const uint STRIP = OWN_ROWS * 5u, STRIPS = INVOCATIONS / SUBGROUP * STRIP;  // results of 16 columns on their way out, rows padded

shared uvec4 staged[STAGED > STRIPS ? STAGED : STRIPS];

uvec4 next_k[LOADS_K], next_v[LOADS_V];
coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> queries[STEPS];
coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[V_STEPS];

// Of component i of a matrix: which of the two rows it is in, and how far its column is from the invocation's first.
#define HALF_OF(i) ((i) >> 2)
#define COLUMN_OF(i) (((i) & 1u) + ((i) >> 1 & 1u) * 8u)

// Exponentials of scores relative to a reference. Without a mask, scores stay the products of keys and queries times p.scale, and `unit`
// takes them to powers of two in the multiply-add that takes the reference off. A mask adds numbers as low as the lowest float, which
// such a unit would take to minus infinity.
#if MASKED
#define POWER(score, reference, unit) exp((score) - (reference))
#else
#define POWER(score, reference, unit) exp2(fma(score, unit, -(reference) * (unit)))
#endif
const float kPowersOfTwo = 1.44269504;  // of two, in a power of e: log2(e)

// The loads have no branch that depends on the invocation's place: past the last key the last one is loaded, and elements past a head
// become zero.
#define FETCH(name, x, next, loads, eights, size)                                                     \
  void name(uint at, uint row_stride, int key, int end) {                                             \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS, eight = n % eights;                   \
      const uint row = uint(min(key + int(n / eights), end - 1));                                     \
      next[i] = x[(at + row * row_stride) / 8u + min(eight, size / 8u - 1u)];                         \
      if (eight * 8u >= size) next[i] = uvec4(0u);                                                    \
    }                                                                                                 \
  }
#define STORE(name, first, next, loads, eights, row_size)                                             \
  void name() {                                                                                       \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS;                                       \
      if (n < KEYS * eights) staged[first + n / eights * row_size + n % eights] = next[i];            \
    }                                                                                                 \
  }
FETCH(fetch_k, k, next_k, LOADS_K, EIGHTS_K, SIZE)
FETCH(fetch_v, v, next_v, LOADS_V, EIGHTS_V, V_SIZE)
FETCH(fetch_q, q, next_k, LOADS_K, EIGHTS_K, SIZE)
STORE(store_k, 0u, next_k, LOADS_K, EIGHTS_K, ROW_K)
STORE(store_v, FIRST_V, next_v, LOADS_V, EIGHTS_V, ROW_V)

void meet() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

void load_queries(uint at, uint first_row) {
  const uint own = gl_SubgroupID * OWN_ROWS;
  for (uint first = 0u; first < ROWS; first += KEYS) {
    fetch_q(at, p.q_row, int(first_row + first), int(p.rows));
    barrier();  // nobody reads the queries staged before
    store_k();
    barrier();  // these queries are staged
    if (own >= first && own < first + KEYS)
      [[unroll]] for (uint step = 0u; step < STEPS; ++step)
        coopMatLoad(queries[step], staged, (own - first) * ROW_K + step * 2u, ROW_K, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();  // the queries are in registers: keys take their place
}

// The largest and the sum of a row lie in the four invocations that share it.
vec2 largest_of_row(vec2 v) {
  v = max(v, subgroupShuffleXor(v, 1u));
  return max(v, subgroupShuffleXor(v, 2u));
}

vec2 sum_of_row(vec2 v) {
  v += subgroupShuffleXor(v, 1u);
  return v + subgroupShuffleXor(v, 2u);
}

void main() {
  const uint image = grid_group().y / p.heads, head = grid_group().y % p.heads, first_row = tile_of() * ROWS;
  const uint last_row = min(first_row + ROWS, p.rows) - 1u;
#if PARTS
  const ivec2 own_part = ivec2(grid_group().z * p.stretch, (grid_group().z + 1u) * p.stretch);
#else
  const ivec2 own_part = ivec2(0, 0x7fffffff);
#endif
  const int begin = max(seen_keys(image, first_row).x, own_part.x), end = min(seen_keys(image, last_row).y, own_part.y);
  const uint at_k = first_k(image, head), at_v = first_v(image, head);
  // The two rows that this invocation has a share in, the keys that they see, and the keys that all and that any row of its subgroup sees.
  const uint own_first = first_row + gl_SubgroupID * OWN_ROWS, first_column = gl_SubgroupInvocationID % 4u * 2u;
  const uvec2 row = min(uvec2(own_first + gl_SubgroupInvocationID / 4u) + uvec2(0u, 8u), uvec2(last_row));
  const ivec2 seen[2] = ivec2[](seen_keys(image, row.x), seen_keys(image, row.y));
  const ivec2 seen_first = seen_keys(image, min(own_first, last_row));
  const ivec2 seen_last = seen_keys(image, min(own_first + OWN_ROWS - 1u, last_row));
  const ivec2 all = ivec2(seen_last.x, min(seen_first.y, end)), any = ivec2(seen_first.x, min(seen_last.y, end));
#if MASKED
  const float unit = 1.0;
#else
  // A scale that does not keep the order of scores, or is too small for a unit, and a cap are applied to each score.
  const bool by_score = !(p.scale > 1e-30) || p.softcap != 0.0;
  const float unit = by_score ? kPowersOfTwo : p.scale * kPowersOfTwo;
#endif
  vec2 largest = vec2(minus_infinity), sum = vec2(0.0);
  [[unroll]] for (uint i = 0u; i < V_STEPS; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  load_queries(first_q(image, head, 0u), first_row);
  if (begin < end) {
    fetch_k(at_k, p.k_row, begin, end);
    fetch_v(at_v, p.v_row, begin, end);
  }
  for (int key = begin; key < end; key += int(KEYS)) {
    store_k();
    store_v();
    barrier();  // the keys and their values are staged
    fetch_k(at_k, p.k_row, key + int(KEYS), end);
    fetch_v(at_v, p.v_row, key + int(KEYS), end);
    if (key < any.y && key + int(KEYS) > any.x) {
      coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> products[BLOCKS];
      [[unroll]] for (uint j = 0u; j < BLOCKS; ++j)
        products[j] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
      [[unroll]] for (uint step = 0u; step < STEPS; ++step)
        [[unroll]] for (uint j = 0u; j < BLOCKS; ++j) {
          coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> keys;
          coopMatLoad(keys, staged, j * 16u * ROW_K + step * 2u, ROW_K, gl_CooperativeMatrixLayoutColumnMajor);
          products[j] = coopMatMulAdd(queries[step], keys, products[j]);
        }
      float scores[BLOCKS * 8u];
#if MASKED
      [[unroll]] for (uint j = 0u; j < BLOCKS; ++j)
        [[unroll]] for (uint i = 0u; i < 8u; ++i) {
          const uint at = min(uint(key) + j * 16u + first_column + COLUMN_OF(i), max(p.keys, 1u) - 1u);
          scores[j * 8u + i] = score_of(image, head, row[HALF_OF(i)], at, products[j][i]);
        }
#else
      [[unroll]] for (uint j = 0u; j < BLOCKS; ++j)
        [[unroll]] for (uint i = 0u; i < 8u; ++i) scores[j * 8u + i] = products[j][i];
      if (by_score)
        [[unroll]] for (uint i = 0u; i < BLOCKS * 8u; ++i) scores[i] = scaled(scores[i]);
#endif
      if (key < all.x || key + int(KEYS) > all.y)
        [[unroll]] for (uint j = 0u; j < BLOCKS; ++j)
          [[unroll]] for (uint i = 0u; i < 8u; ++i) {
            const int at = key + int(j * 16u + first_column + COLUMN_OF(i));
            if (at < seen[HALF_OF(i)].x || at >= min(seen[HALF_OF(i)].y, end)) scores[j * 8u + i] = minus_infinity;
          }
      vec2 now = largest;
      [[unroll]] for (uint j = 0u; j < BLOCKS; ++j)
        [[unroll]] for (uint i = 0u; i < 8u; ++i) now[HALF_OF(i)] = max(now[HALF_OF(i)], scores[j * 8u + i]);
      now = largest_of_row(now);
      const vec2 reference = vec2(reference_of(now.x), reference_of(now.y));
      const vec2 factor = vec2(POWER(largest.x, reference.x, unit), POWER(largest.y, reference.y, unit));
      largest = now;
      sum *= factor;
      [[unroll]] for (uint i = 0u; i < BLOCKS * 8u; ++i) {
        scores[i] = POWER(scores[i], reference[HALF_OF(i % 8u)], unit);
        sum[HALF_OF(i % 8u)] += scores[i];
      }
      [[unroll]] for (uint j = 0u; j < V_STEPS; ++j)
        [[unroll]] for (uint i = 0u; i < 8u; ++i) sums[j][i] *= factor[HALF_OF(i)];
      [[unroll]] for (uint step = 0u; step < BLOCKS; ++step) {
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> weights;
        [[unroll]] for (uint i = 0u; i < 8u; ++i) weights[i] = float16_t(scores[step * 8u + i]);
        [[unroll]] for (uint j = 0u; j < V_STEPS; ++j) {
          coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> values;
          coopMatLoad(values, staged, FIRST_V + step * 16u * ROW_V + j * 2u, ROW_V, gl_CooperativeMatrixLayoutRowMajor);
          sums[j] = coopMatMulAdd(weights, values, sums[j]);
        }
      }
    }
    barrier();  // nobody reads the keys and values any more: the next ones take their place
  }
  sum = sum_of_row(sum);
  // Results go out by strips of 16 columns, of which two invocations have a row.
  const uint strip = gl_SubgroupID * STRIP, own_row = gl_SubgroupInvocationID / 2u, part = gl_SubgroupInvocationID % 2u;
  const vec2 sum_of_own = subgroupShuffle(sum, (own_row & 7u) * 4u), largest_of_own = subgroupShuffle(largest, (own_row & 7u) * 4u);
  const float own_sum = own_row < 8u ? sum_of_own.x : sum_of_own.y, own_largest = own_row < 8u ? largest_of_own.x : largest_of_own.y;
  const uint out_row = own_first + own_row, at = first_y(image, head, min(out_row, last_row));
  [[unroll]] for (uint j = 0u; j < V_STEPS; ++j) {
    coopMatStore(sums[j], staged, strip, 5u, gl_CooperativeMatrixLayoutRowMajor);
    meet();
    for (uint four = part; four < 4u; four += 2u)
      if (out_row <= last_row) store_four(at, j * 16u + four * 4u, uintBitsToFloat(staged[strip + own_row * 5u + four]), own_sum);
    meet();
  }
#if !MASKED
  const float own_score = own_largest * (unit / kPowersOfTwo);
#else
  const float own_score = own_largest;
#endif
  if (out_row <= last_row && part == 0u) store_terms(at, own_score, own_sum);
}
