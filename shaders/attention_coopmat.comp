// Flash attention on cooperative matrices of 16 x 16 x 16: fp16 or bf16 operands, float accumulators. See include/attention.glsl for
// buffers.
//
// Workgroup (x, y, z) = (tile of ROWS queries, head of a batch item, split of the keys). A subgroup has 16 queries, whose fragments stay in
// registers. All subgroups share a tile of 32 keys in shared memory: first K, then V in its place. The next tile of either is prefetched
// into registers. The fragment layout is unknown, so scores pass through shared memory for the softmax, with PER invocations per row. They
// write back the probabilities and, as a matrix of 16 equal columns, the factor that rescales the accumulators.
//   load Q fragments; prefetch K
//   for each tile of 32 keys:
//     store K to shared memory; prefetch V of this tile
//     S = Q K^T -> shared; online softmax -> P, factor in shared memory
//     store V to shared memory; prefetch the next K
//     acc = acc * factor + P V
//
// Requires VK_KHR_cooperative_matrix, subgroups of 32 or 64, and heads of whole, aligned vec8s. Selected in attention.cpp (matrix_plan) if
// the device's fragment layout is not the one that attention_mma needs.
#version 450
#extension GL_EXT_control_flow_attributes : require
#if NCNN_bf16_storage
#extension GL_EXT_bfloat16 : require
#define MATRIX_FLOAT bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define MATRIX_FLOAT float16_t
#endif
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

const uint kKeys = 32u, kMatrices = kKeys / 16u;
const uint STEPS = (SIZE + 15u) / 16u, V_STEPS = (V_SIZE + 15u) / 16u;  // fragments along the head
const uint EIGHTS_K = STEPS * 2u, EIGHTS_V = V_STEPS * 2u;
const uint ROW_K = EIGHTS_K + 1u, ROW_V = EIGHTS_V + 1u;  // padded by one to avoid bank conflicts
const uint ROW_S = kKeys / 4u + 1u, FACTORS = kKeys / 8u;  // per row: 32 scores, or P and 16 copies of the factor
const uint LOADS_K = (kKeys * EIGHTS_K + INVOCATIONS - 1u) / INVOCATIONS, LOADS_V = (kKeys * EIGHTS_V + INVOCATIONS - 1u) / INVOCATIONS;
const uint OWN_ROWS = 16u, PER = SUBGROUP / OWN_ROWS, OWN_FOURS = kKeys / 4u / PER;
const uint SUBGROUPS = INVOCATIONS / SUBGROUP, ROWS = SUBGROUPS * OWN_ROWS;

shared uvec4 staged[kKeys * (ROW_K > ROW_V ? ROW_K : ROW_V)];
shared uvec4 strips[SUBGROUPS * OWN_ROWS * ROW_S];

uvec4 next_k[LOADS_K], next_v[LOADS_V];
coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> queries[STEPS];
coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[V_STEPS];

uint pack_two(float a, float b) {
#if NCNN_bf16_storage
  uvec2 bits = floatBitsToUint(vec2(a, b));
  bits += 0x7fffu + (bits >> 16 & 1u);  // round to nearest even
  return bits.x >> 16 | (bits.y & 0xffff0000u);
#else
  return packHalf2x16(vec2(a, b));
#endif
}

void meet() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// Branch-free loads: keys past the end repeat the last key, elements past the head become zero.
#define FETCH(name, x, next, loads, eights, size)                                                     \
  void name(uint at, uint row_stride, int key, int end) {                                             \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS, eight = n % eights;                   \
      const uint row = uint(min(key + int(n / eights), end - 1));                                     \
      next[i] = x[(at + row * row_stride) / 8u + min(eight, size / 8u - 1u)];                         \
      if (eight * 8u >= size) next[i] = uvec4(0u);                                                    \
    }                                                                                                 \
  }
#define STORE(name, next, loads, eights, row_size)                                                    \
  void name() {                                                                                       \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS;                                       \
      if (n < kKeys * eights) staged[n / eights * row_size + n % eights] = next[i];                   \
    }                                                                                                 \
    barrier();                                                                                        \
  }
FETCH(fetch_k, k, next_k, LOADS_K, EIGHTS_K, SIZE)
FETCH(fetch_v, v, next_v, LOADS_V, EIGHTS_V, V_SIZE)
FETCH(fetch_q, q, next_k, LOADS_K, EIGHTS_K, SIZE)
STORE(store_k, next_k, LOADS_K, EIGHTS_K, ROW_K)
STORE(store_v, next_v, LOADS_V, EIGHTS_V, ROW_V)

void load_queries(uint at, uint first_row) {
  const uint own = gl_SubgroupID * OWN_ROWS;
  for (uint first = 0u; first < ROWS; first += kKeys) {
    fetch_q(at, p.q_row, int(first_row + first), int(p.rows));
    barrier();  // wait until no subgroup is still loading the previous queries
    store_k();
    if (own >= first && own < first + kKeys)
      [[unroll]] for (uint step = 0u; step < STEPS; ++step)
        coopMatLoad(queries[step], staged, (own - first) * ROW_K + step * 2u, ROW_K, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();  // Q is in registers; K reuses the buffer
}

void multiply_keys(uint strip) {
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> products[kMatrices];
  [[unroll]] for (uint i = 0u; i < kMatrices; ++i)
    products[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  [[unroll]] for (uint step = 0u; step < STEPS; ++step)
    [[unroll]] for (uint j = 0u; j < kMatrices; ++j) {
      coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> keys;
      coopMatLoad(keys, staged, j * 16u * ROW_K + step * 2u, ROW_K, gl_CooperativeMatrixLayoutColumnMajor);
      products[j] = coopMatMulAdd(queries[step], keys, products[j]);
    }
  [[unroll]] for (uint j = 0u; j < kMatrices; ++j)
    coopMatStore(products[j], strips, strip + j * 4u, ROW_S, gl_CooperativeMatrixLayoutRowMajor);
  meet();
}

void multiply_values(uint strip) {
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> factors;
  coopMatLoad(factors, strips, strip + FACTORS, ROW_S, gl_CooperativeMatrixLayoutRowMajor);
  [[unroll]] for (uint j = 0u; j < V_STEPS; ++j) sums[j] = sums[j] * factors;
  [[unroll]] for (uint step = 0u; step < kMatrices; ++step) {
    coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> weights;
    coopMatLoad(weights, strips, strip + step * 2u, ROW_S, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0u; j < V_STEPS; ++j) {
      coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> values;
      coopMatLoad(values, staged, step * 16u * ROW_V + j * 2u, ROW_V, gl_CooperativeMatrixLayoutRowMajor);
      sums[j] = coopMatMulAdd(weights, values, sums[j]);
    }
  }
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
  const uint strip = gl_SubgroupID * OWN_ROWS * ROW_S;
  // The row that this invocation works on, and its part of the row.
  const uint own_row = gl_SubgroupInvocationID / PER, part = gl_SubgroupInvocationID % PER, own = strip + own_row * ROW_S;
  const uint row = first_row + gl_SubgroupID * OWN_ROWS + own_row;
  ivec2 seen = seen_keys(image, min(row, last_row));
  seen.y = min(seen.y, end);
  float largest = minus_infinity, sum = 0.0;
  [[unroll]] for (uint i = 0u; i < V_STEPS; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  load_queries(first_q(image, head, 0u), first_row);
  if (begin < end) fetch_k(at_k, p.k_row, begin, end);
  for (int key = begin; key < end; key += int(kKeys)) {
    store_k();
    fetch_v(at_v, p.v_row, key, end);
#if MASKED == 2
    vec4 added[OWN_FOURS];  // additive mask, prefetched; out-of-range keys read the last element
    [[unroll]] for (uint i = 0u; i < OWN_FOURS * 4u; ++i) {
      const uint at = min(uint(key) + part * OWN_FOURS * 4u + i, last_masked());
      added[i / 4u][i % 4u] = mask_at(mask_index(image, head, min(row, last_row), at));
    }
#endif
    multiply_keys(strip);
    vec4 scores[OWN_FOURS];
    float now = largest;
    [[unroll]] for (uint i = 0u; i < OWN_FOURS; ++i) {
      const uint four = part * OWN_FOURS + i;
      scores[i] = uintBitsToFloat(strips[own + four]);
      [[unroll]] for (uint j = 0u; j < 4u; ++j) {
        const int at = key + int(four * 4u + j);
        const bool visible = at >= seen.x && at < seen.y;
#if MASKED == 2
        scores[i][j] = visible ? masked(scaled(scores[i][j]), added[i][j]) : minus_infinity;
#else
        scores[i][j] = visible ? score_of(image, head, min(row, last_row), uint(at), scores[i][j]) : minus_infinity;
#endif
        now = max(now, scores[i][j]);
      }
    }
    [[unroll]] for (uint mask_of = 1u; mask_of < PER; mask_of <<= 1) now = max(now, subgroupShuffleXor(now, mask_of));
    const float reference = reference_of(now), factor = exp(largest - reference);
    largest = now;
    sum *= factor;
    [[unroll]] for (uint i = 0u; i < OWN_FOURS; ++i) {
      scores[i] = exp(scores[i] - reference);
      sum += (scores[i].x + scores[i].y) + (scores[i].z + scores[i].w);
    }
    meet();  // scores are read; P and the factor reuse the memory
    [[unroll]] for (uint i = 0u; i < OWN_FOURS / 2u; ++i) {
      const vec4 a = scores[i * 2u], b = scores[i * 2u + 1u];
      strips[own + part * (OWN_FOURS / 2u) + i] = uvec4(pack_two(a.x, a.y), pack_two(a.z, a.w), pack_two(b.x, b.y), pack_two(b.z, b.w));
      strips[own + FACTORS + part * (OWN_FOURS / 2u) + i] = uvec4(floatBitsToUint(factor));
    }
    barrier();  // wait until no subgroup is still reading K; V reuses the buffer
    store_v();
    fetch_k(at_k, p.k_row, key + int(kKeys), end);
    multiply_values(strip);
    barrier();  // wait until no subgroup is still reading V; the next K tile reuses the buffer
  }
  [[unroll]] for (uint mask_of = 1u; mask_of < PER; mask_of <<= 1) sum += subgroupShuffleXor(sum, mask_of);
  const uint at = first_y(image, head, min(row, last_row));
  [[unroll]] for (uint j = 0u; j < V_STEPS; ++j) {
    coopMatStore(sums[j], strips, strip, ROW_S, gl_CooperativeMatrixLayoutRowMajor);
    meet();
    for (uint four = part; four < 4u; four += PER)
      if (row <= last_row) store_four(at, j * 16u + four * 4u, uintBitsToFloat(strips[own + four]), sum);
    meet();
  }
  if (row <= last_row && part == 0u) store_terms(at, largest, sum);
}
