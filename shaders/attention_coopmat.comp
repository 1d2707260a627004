// Flash attention on cooperative matrices of 16 x 16 x 16: fp16 or bf16 operands, float accumulators. See include/attention.glsl for
// buffers.
//
// Workgroup (x, y, z) = (tile of ROWS queries, head of a batch item, split of the keys). A subgroup has 16 queries, whose fragments stay in
// registers. All subgroups share a tile of 32 keys in shared memory: first K, then V in its place. The next K or V tile is prefetched into
// registers. The fragment layout is unknown, so scores pass through shared memory for the softmax, with LANES_PER_ROW invocations per row.
// They write back the probabilities and, as a matrix of 16 equal columns, the factor that rescales the accumulators.
//   load Q fragments; prefetch K
//   for each tile of 32 keys:
//     store K to shared memory; prefetch V of this tile
//     S = Q K^T -> shared; online softmax -> P, factor in shared memory
//     store V to shared memory; prefetch the next K
//     acc = acc * factor + P V
//
// Requires VK_KHR_cooperative_matrix, subgroups of 32 or 64, and 16-byte-aligned heads whose size is a multiple of 8. Selected in
// attention.cpp (choose_coopmat_plan) if the device's fragment layout is not the one that attention_mma needs.
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
#define VEC8 1
#include "include/attention.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 2) const uint INVOCATIONS = 128u;

const uint kKeys = 32u, kMatrices = kKeys / 16u;
const uint QK_FRAGMENTS = (SIZE + 15u) / 16u, V_FRAGMENTS = (V_SIZE + 15u) / 16u;  // fragments along the head
const uint VEC8_PER_K_ROW = QK_FRAGMENTS * 2u, VEC8_PER_V_ROW = V_FRAGMENTS * 2u;
const uint K_ROW_STRIDE = VEC8_PER_K_ROW + 1u, V_ROW_STRIDE = VEC8_PER_V_ROW + 1u;  // padded by one to avoid bank conflicts
const uint SCORE_ROW_STRIDE = kKeys / 4u + 1u, FACTOR_OFFSET = kKeys / 8u;  // per row: 32 scores, or P and 16 copies of the factor
const uint LOADS_K = (kKeys * VEC8_PER_K_ROW + INVOCATIONS - 1u) / INVOCATIONS, LOADS_V = (kKeys * VEC8_PER_V_ROW + INVOCATIONS - 1u) / INVOCATIONS;
const uint SUBGROUP_ROWS = 16u, LANES_PER_ROW = SUBGROUP / SUBGROUP_ROWS, ROW_VEC4 = kKeys / 4u / LANES_PER_ROW;
const uint SUBGROUPS = INVOCATIONS / SUBGROUP, ROWS = SUBGROUPS * SUBGROUP_ROWS;

shared uvec4 staged[kKeys * (K_ROW_STRIDE > V_ROW_STRIDE ? K_ROW_STRIDE : V_ROW_STRIDE)];
shared uvec4 score_tiles[SUBGROUPS * SUBGROUP_ROWS * SCORE_ROW_STRIDE];

uvec4 next_k[LOADS_K], next_v[LOADS_V];
coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> queries[QK_FRAGMENTS];
coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[V_FRAGMENTS];

uint pack_16bit_pair(float a, float b) {
#if NCNN_bf16_storage
  uvec2 bits = floatBitsToUint(vec2(a, b));
  bits += 0x7fffu + (bits >> 16 & 1u);  // round to nearest even
  return bits.x >> 16 | (bits.y & 0xffff0000u);
#else
  return packHalf2x16(vec2(a, b));
#endif
}

void sync_subgroup() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// Branch-free loads: keys past the end repeat the last key, elements past the head size become zero.
#define DEFINE_FETCH(name, x, next, loads, vec8_per_row, size)                                                     \
  void name(uint at, uint row_stride, int key, int end) {                                             \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS, vec8_index = n % vec8_per_row;                   \
      const uint row = uint(min(key + int(n / vec8_per_row), end - 1));                                     \
      next[i] = x[(at + row * row_stride) / 8u + min(vec8_index, size / 8u - 1u)];                         \
      if (vec8_index * 8u >= size) next[i] = uvec4(0u);                                                    \
    }                                                                                                 \
  }
#define DEFINE_STORE(name, next, loads, vec8_per_row, row_size)                                                    \
  void name() {                                                                                       \
    [[unroll]] for (uint i = 0u; i < loads; ++i) {                                                    \
      const uint n = gl_LocalInvocationIndex + i * INVOCATIONS;                                       \
      if (n < kKeys * vec8_per_row) staged[n / vec8_per_row * row_size + n % vec8_per_row] = next[i];                   \
    }                                                                                                 \
    barrier();                                                                                        \
  }
DEFINE_FETCH(fetch_k, k, next_k, LOADS_K, VEC8_PER_K_ROW, SIZE)
DEFINE_FETCH(fetch_v, v, next_v, LOADS_V, VEC8_PER_V_ROW, V_SIZE)
DEFINE_FETCH(fetch_q, q, next_k, LOADS_K, VEC8_PER_K_ROW, SIZE)
DEFINE_STORE(store_k, next_k, LOADS_K, VEC8_PER_K_ROW, K_ROW_STRIDE)
DEFINE_STORE(store_v, next_v, LOADS_V, VEC8_PER_V_ROW, V_ROW_STRIDE)

void load_queries(uint at, uint first_row) {
  const uint subgroup_row = gl_SubgroupID * SUBGROUP_ROWS;
  for (uint first = 0u; first < ROWS; first += kKeys) {
    fetch_q(at, p.q_row, int(first_row + first), int(p.rows));
    barrier();  // wait until no subgroup is still loading the previous queries
    store_k();
    if (subgroup_row >= first && subgroup_row < first + kKeys)
      [[unroll]] for (uint step = 0u; step < QK_FRAGMENTS; ++step)
        coopMatLoad(queries[step], staged, (subgroup_row - first) * K_ROW_STRIDE + step * 2u, K_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
  }
  barrier();  // Q is in registers; K reuses the buffer
}

void multiply_keys(uint tile_offset) {
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> products[kMatrices];
  [[unroll]] for (uint i = 0u; i < kMatrices; ++i)
    products[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  [[unroll]] for (uint step = 0u; step < QK_FRAGMENTS; ++step)
    [[unroll]] for (uint j = 0u; j < kMatrices; ++j) {
      coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> keys;
      coopMatLoad(keys, staged, j * 16u * K_ROW_STRIDE + step * 2u, K_ROW_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
      products[j] = coopMatMulAdd(queries[step], keys, products[j]);
    }
  [[unroll]] for (uint j = 0u; j < kMatrices; ++j)
    coopMatStore(products[j], score_tiles, tile_offset + j * 4u, SCORE_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
  sync_subgroup();
}

void multiply_values(uint tile_offset) {
  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> factors;
  coopMatLoad(factors, score_tiles, tile_offset + FACTOR_OFFSET, SCORE_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
  [[unroll]] for (uint j = 0u; j < V_FRAGMENTS; ++j) sums[j] = sums[j] * factors;
  [[unroll]] for (uint step = 0u; step < kMatrices; ++step) {
    coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> probabilities;
    coopMatLoad(probabilities, score_tiles, tile_offset + step * 2u, SCORE_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0u; j < V_FRAGMENTS; ++j) {
      coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> values;
      coopMatLoad(values, staged, step * 16u * V_ROW_STRIDE + j * 2u, V_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
      sums[j] = coopMatMulAdd(probabilities, values, sums[j]);
    }
  }
}

void main() {
  const uint batch = grid_group().y / p.heads, head = grid_group().y % p.heads, first_row = tile_index() * ROWS;
  const uint last_row = min(first_row + ROWS, p.rows) - 1u;
#if SPLIT_KEYS
  const ivec2 split_range = ivec2(grid_group().z * p.split_size, (grid_group().z + 1u) * p.split_size);
#else
  const ivec2 split_range = ivec2(0, 0x7fffffff);
#endif
  const int begin = max(visible_keys(batch, first_row).x, split_range.x), end = min(visible_keys(batch, last_row).y, split_range.y);
  const uint at_k = k_head_offset(batch, head), at_v = v_head_offset(batch, head);
  const uint tile_offset = gl_SubgroupID * SUBGROUP_ROWS * SCORE_ROW_STRIDE;
  // The score row that this invocation processes, and its index among the LANES_PER_ROW invocations of that row.
  const uint row_in_subgroup = gl_SubgroupInvocationID / LANES_PER_ROW, lane_in_row = gl_SubgroupInvocationID % LANES_PER_ROW, row_offset = tile_offset + row_in_subgroup * SCORE_ROW_STRIDE;
  const uint row = first_row + gl_SubgroupID * SUBGROUP_ROWS + row_in_subgroup;
  ivec2 visible_range = visible_keys(batch, min(row, last_row));
  visible_range.y = min(visible_range.y, end);
  float row_max = minus_infinity, sum = 0.0;
  [[unroll]] for (uint i = 0u; i < V_FRAGMENTS; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  load_queries(q_row_offset(batch, head, 0u), first_row);
  if (begin < end) fetch_k(at_k, p.k_row, begin, end);
  for (int key = begin; key < end; key += int(kKeys)) {
    store_k();
    fetch_v(at_v, p.v_row, key, end);
#if MASKED == 2
    vec4 added[ROW_VEC4];  // additive mask, prefetched; out-of-range keys read the last element
    [[unroll]] for (uint i = 0u; i < ROW_VEC4 * 4u; ++i) {
      const uint at = min(uint(key) + lane_in_row * ROW_VEC4 * 4u + i, last_masked());
      added[i / 4u][i % 4u] = load_mask(mask_index(batch, head, min(row, last_row), at));
    }
#endif
    multiply_keys(tile_offset);
    vec4 scores[ROW_VEC4];
    float new_max = row_max;
    [[unroll]] for (uint i = 0u; i < ROW_VEC4; ++i) {
      const uint vec4_index = lane_in_row * ROW_VEC4 + i;
      scores[i] = uintBitsToFloat(score_tiles[row_offset + vec4_index]);
      [[unroll]] for (uint j = 0u; j < 4u; ++j) {
        const int at = key + int(vec4_index * 4u + j);
        const bool is_visible = at >= visible_range.x && at < visible_range.y;
#if MASKED == 2
        scores[i][j] = is_visible ? apply_mask(scale_score(scores[i][j]), added[i][j]) : minus_infinity;
#else
        scores[i][j] = is_visible ? attention_score(batch, head, min(row, last_row), uint(at), scores[i][j]) : minus_infinity;
#endif
        new_max = max(new_max, scores[i][j]);
      }
    }
    [[unroll]] for (uint xor_mask = 1u; xor_mask < LANES_PER_ROW; xor_mask <<= 1) new_max = max(new_max, subgroupShuffleXor(new_max, xor_mask));
    const float shift = softmax_shift(new_max), factor = exp(row_max - shift);
    row_max = new_max;
    sum *= factor;
    [[unroll]] for (uint i = 0u; i < ROW_VEC4; ++i) {
      scores[i] = exp(scores[i] - shift);
      sum += (scores[i].x + scores[i].y) + (scores[i].z + scores[i].w);
    }
    sync_subgroup();  // all scores have been read; P and the factor reuse their memory
    [[unroll]] for (uint i = 0u; i < ROW_VEC4 / 2u; ++i) {
      const vec4 a = scores[i * 2u], b = scores[i * 2u + 1u];
      score_tiles[row_offset + lane_in_row * (ROW_VEC4 / 2u) + i] = uvec4(pack_16bit_pair(a.x, a.y), pack_16bit_pair(a.z, a.w), pack_16bit_pair(b.x, b.y), pack_16bit_pair(b.z, b.w));
      score_tiles[row_offset + FACTOR_OFFSET + lane_in_row * (ROW_VEC4 / 2u) + i] = uvec4(floatBitsToUint(factor));
    }
    barrier();  // wait until no subgroup is still reading K; V reuses the buffer
    store_v();
    fetch_k(at_k, p.k_row, key + int(kKeys), end);
    multiply_values(tile_offset);
    barrier();  // wait until no subgroup is still reading V; the next K tile reuses the buffer
  }
  [[unroll]] for (uint xor_mask = 1u; xor_mask < LANES_PER_ROW; xor_mask <<= 1) sum += subgroupShuffleXor(sum, xor_mask);
  const uint at = y_row_offset(batch, head, min(row, last_row));
  [[unroll]] for (uint j = 0u; j < V_FRAGMENTS; ++j) {
    coopMatStore(sums[j], score_tiles, tile_offset, SCORE_ROW_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    sync_subgroup();
    for (uint vec4_index = lane_in_row; vec4_index < 4u; vec4_index += LANES_PER_ROW)
      if (row <= last_row) store_output_vec4(at, j * 16u + vec4_index * 4u, uintBitsToFloat(score_tiles[row_offset + vec4_index]), sum);
    sync_subgroup();
  }
  if (row <= last_row && lane_in_row == 0u) store_softmax_stats(at, row_max, sum);
}
