// fp32 GEMM on fp16 cooperative matrices: each float is split into fp16 hi and lo (include/split_fp16.glsl). Otherwise like gemm_mma.comp.
//
// x: rows of whole vec8s of fp16, or X_SPLIT: hi, lo and an exponent per row, from split_fp16_rows.comp. w: packed as [columns / 8][K /
// 32][hi, lo][32][8], times 2^w_exponent. Accumulators are float.
// hi * hi is accumulated in one set of accumulators and hi * lo + lo * hi in another; LOW_FIRST: in the same set in successive passes,
// which leaves registers to prefetch more. lo * lo is below the error of a float and is omitted.
//   for each K chunk of 32 of this split: load x, w fragments (PREFETCH: of the next chunk); sums += hi hi; cross += hi lo + lo hi
//   reduce over SPLIT in shared memory; sums + cross / 4096; scale; bias, epilogue, store
// A row that fp16 cannot represent, or whose sum is not finite, is computed in plain float at the end.
//
// Requires matrices in the layout of include/mma.glsl, or their emulation (has_or_emulates_mma). Selected in
// cpp/operators/conv_gemm/mma_plans.cpp (make_split_fp16_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#define SPLIT_FP16 1
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"
#include "include/split_fp16.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // a subgroup of 32 per split of K
layout(constant_id = 1) const uint TILE_M = 32u;
layout(constant_id = 2) const uint TILE_N = 32u;
layout(constant_id = 3) const uint SUB_M = 32u;
layout(constant_id = 4) const uint SUB_N = 32u;
layout(constant_id = 5) const uint UNROLL = 1u;  // chunks of 32 K steps loaded at once
layout(constant_id = 6) const uint PREFETCH = 0u;  // 1: prefetch the next chunks
layout(constant_id = 7) const uint NO_K_TAIL = 0u;  // 1: all subgroups have equal, full chunks
layout(constant_id = 8) const uint LOW_FIRST = 0u;  // 1: a pass over K per pair of hi and lo; hi * hi last
#include "include/mma.glsl"

layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif
#include "include/store_vec4.glsl"
#include "include/unroll.glsl"

#if X_SPLIT
const uint PARTS_OF_X = 2u;
#else
const uint PARTS_OF_X = 1u;
#endif
const uint PASSES = LOW_FIRST != 0u ? PARTS_OF_X + 1u : 1u;
const uint LOADED_X = LOW_FIRST != 0u ? 1u : PARTS_OF_X, LOADED_W = 2u - LOW_FIRST;  // number of parts (hi, lo) loaded together
const uint ROWS = SUB_M / 16u, COLUMNS = SUB_N / 16u;
const uint ACROSS = TILE_N / SUB_N, TILES = TILE_M / SUB_M * ACROSS, SPLIT = INVOCATIONS / kLanes / TILES;
const uint N_VEC4 = TILE_N / 4u, ROW_Y = TILE_N + 4u;  // padded to avoid bank conflicts
const uint CHUNK_PITCH = 64u;                          // vec8s per chunk of 8 columns: 32 hi, then 32 lo
const uint FP32_ROW = 0x80000000u;                     // marks rows stored as fp32
shared float staging[SPLIT * TILE_M * ROW_Y];

ACCUMULATOR_ARRAY(sums, ROWS * COLUMNS);
ACCUMULATOR_ARRAY(cross, ROWS * COLUMNS);  // hi * lo + lo * hi

uint num_vec8, chunks;                      // number of vec8s along K; number of chunks
uint rows[2 * ROWS], columns[2 * COLUMNS];  // start of this lane's rows of x and columns of w, in vec8s
// Operand registers: UNROLL chunks of each, double-buffered with PREFETCH.
uvec4 regs_x[(1u + PREFETCH) * UNROLL * LOADED_X * 2u * ROWS], regs_w[(1u + PREFETCH) * UNROLL * LOADED_W * 2u * COLUMNS];
uint low_x = 0u, low_w = 0u;  // 1: this pass uses the lo parts
#include "include/mma_main_loop.glsl"

// Register index of row or column i; `lo` is 1 for the lo parts if both are loaded.
uint x_register_index(uint at, uint lo, uint i) { return (at * LOADED_X + lo) * 2u * ROWS + i; }
uint w_register_index(uint at, uint lo, uint i) { return (at * LOADED_W + lo) * 2u * COLUMNS + i; }

// Loads UNROLL chunks, starting at `begin`, into buffer `to`. Branch-free, so that all loads are in flight at once: past the end the last
// vec8 is repeated, and counts as zero.
void load_chunks(uint to, uint begin) {
  FOR(k, UNROLL) {
    const uint chunk = begin + k, vec8_index = chunk * 4u + LANE % 4u, at = to * UNROLL + k;
    const uint at_w = (NO_K_TAIL != 0u ? chunk : min(chunk, chunks - 1u)) * CHUNK_PITCH, at_x = NO_K_TAIL != 0u ? vec8_index : min(vec8_index, num_vec8 - 1u);
    FOR(lo, LOADED_W) FOR(i, 2u * COLUMNS) regs_w[w_register_index(at, lo, i)] = w[columns[i] + at_w + (low_w + lo) * kLanes];
    FOR(lo, LOADED_X) FOR(i, 2u * ROWS) regs_x[x_register_index(at, lo, i)] = x[rows[i] + at_x + (low_x + lo) * num_vec8];
    if (NO_K_TAIL == 0u && vec8_index >= num_vec8) {
      FOR(i, LOADED_W * 2u * COLUMNS) regs_w[w_register_index(at, 0u, i)] = uvec4(0u);
      FOR(i, LOADED_X * 2u * ROWS) regs_x[x_register_index(at, 0u, i)] = uvec4(0u);
    }
  }
}

// Accumulates the chunks in buffer `from`.
void multiply_chunks(uint from) {
  FOR(k, UNROLL) FOR(k_half, 2u) {
    const uint at = from * UNROLL + k;
    MATRIX_A_ARRAY(left, LOADED_X * ROWS);
    FOR(i, LOADED_X * ROWS) SET_FRAGMENT_LINES(left[i], regs_x, x_register_index(at, i / ROWS, i % ROWS * 2u), k_half)
    FOR(j, COLUMNS) {
      MATRIX_B_ARRAY(right, LOADED_W);
      FOR(lo, LOADED_W) SET_FRAGMENT_LINES(right[lo], regs_w, w_register_index(at, lo, j * 2u), k_half)
      FOR(i, ROWS) {
        MMA(left[i], right[0], sums[i * COLUMNS + j]);
        if (LOADED_W == 2u) MMA(left[i], right[LOADED_W - 1u], cross[i * COLUMNS + j]);
        if (LOADED_X == 2u) MMA(left[(LOADED_X - 1u) * ROWS + i], right[0], cross[i * COLUMNS + j]);
      }
    }
  }
}

// fp32 fallback: accumulates a vec8 of a row times four columns; columns past the last repeat the last.
void add_fp32_products(uint first, uint vec8_index, uint column[4], float scale, inout vec4 sum) {
#if X_SPLIT
  const uvec4 low_x = x[first + 2u * vec8_index], high_x = x[first + 2u * vec8_index + 1u];
#else
  const uvec4 whole_x = x[first + vec8_index];
#endif
  const uint at = vec8_index / 4u * CHUNK_PITCH + vec8_index % 4u;
  FOR(j, 4u) {
    const uvec4 high_w = w[column[j] + at], low_w = w[column[j] + at + kLanes];
    FOR(i, 8u) {
#if X_SPLIT
      const float factor = uintBitsToFloat(i < 4u ? low_x[i % 4u] : high_x[i % 4u]);
#else
      const float factor = unpackHalf2x16(whole_x[i / 2u])[i % 2u];
#endif
      const float hi = unpackHalf2x16(high_w[i / 2u])[i % 2u], lo = unpackHalf2x16(low_w[i / 2u])[i % 2u];
      // The zero padding of rows is skipped: 0 * inf would be NaN.
      if (vec8_index * 8u + i < p.channels_in) sum[j] = fma(factor, (hi + lo / kLoScale) * scale, sum[j]);
    }
  }
}

// fp32 fallback for a row that starts at vec8 `first`: four sums, starting at `channel`. One such row delays its whole workgroup, so four
// vec8s are unrolled to keep loads in flight.
vec4 compute_fp32_row(uint first, uint channel) {
  vec4 sum = vec4(0.0);
  uint column[4];
  for (uint j = 0u; j < 4u; ++j) {
    const uint column_index = min(channel + j, p.channels_out - 1u);
    column[j] = (p.w_offset >> 3) + column_index / 8u * chunks * CHUNK_PITCH + column_index % 8u * 4u;
  }
  const float scale = power_of_two(p.w_exponent);
  uint vec8_index = 0u;
  for (; vec8_index + 4u <= num_vec8; vec8_index += 4u) FOR(k, 4u) add_fp32_products(first, vec8_index + k, column, scale, sum);
  for (; vec8_index < num_vec8; ++vec8_index) add_fp32_products(first, vec8_index, column, scale, sum);
  return sum;
}

// Scales the sums of a row for four columns, or recomputes them in fp32.
vec4 scale_sums(uint pixel, uint channel, vec4 sum) {
  const uint first = (p.x_offset + pixel * p.x_stride_w) >> 3;
#if X_SPLIT
  const uint exponent = x[first + 2u * num_vec8].x;
  if (exponent == FP32_ROW) return compute_fp32_row(first, channel);
  const int exponent_sum = p.w_exponent + int(exponent);
#else
  const uvec4 special = uvec4(0x7f800000u);
  if (any(equal(floatBitsToUint(sum) & special, special))) return compute_fp32_row(first, channel);
  const int exponent_sum = p.w_exponent;
#endif
  return sum * power_of_two(exponent_sum / 2) * power_of_two(exponent_sum - exponent_sum / 2);
}

void main() {
  const uint first_row = grid_group().x * TILE_M, first_column = grid_group().y * TILE_N;
  const uint split = SUBGROUP_ID / TILES, tile = SUBGROUP_ID % TILES;
  const uint tile_row = tile / ACROSS * SUB_M, tile_column = tile % ACROSS * SUB_N;
  const uint blocks = (p.channels_out + 7u) / 8u;
  num_vec8 = (p.channels_in + 7u) / 8u, chunks = (num_vec8 + 3u) / 4u;
  FOR(i, 2u * ROWS) {
    const uint row = first_row + tile_row + LANE / 4u + i * 8u;
    rows[i] = (p.x_offset + min(row, p.pixels - 1u) * p.x_stride_w) >> 3;
  }
  FOR(i, 2u * COLUMNS)
    columns[i] = (p.w_offset >> 3) + min((first_column + tile_column) / 8u + i, blocks - 1u) * chunks * CHUNK_PITCH + LANE;
  FOR(i, ROWS * COLUMNS) {
    CLEAR_ACCUMULATOR(sums[i]);
    CLEAR_ACCUMULATOR(cross[i]);
  }
  [[dont_unroll]] for (uint pass = 0u; pass < PASSES; ++pass) {
    if (LOW_FIRST != 0u) {
      low_w = pass == 0u ? 1u : 0u;
      low_x = pass + 1u < PASSES ? pass : 0u;
      if (pass > 0u && pass + 1u == PASSES) FOR(i, ROWS * COLUMNS) FOR(c, kComponents) sums[i][c] /= kLoScale;
    }
    run_main_loop(split);
  }
  FOR(i, ROWS) FOR(j, COLUMNS) FOR(c, kComponents)
    staging[(split * TILE_M + tile_row + i * 16u + ACC_ROW(c)) * ROW_Y + tile_column + j * 16u + ACC_COLUMN(c)] =
        sums[i * COLUMNS + j][c] + (LOW_FIRST != 0u ? 0.0 : cross[i * COLUMNS + j][c] / kLoScale);
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < TILE_M * N_VEC4; q += INVOCATIONS) {
    const uint pixel = first_row + q / N_VEC4, vec4_index = q % N_VEC4, channel = first_column + vec4_index * 4u;
    if (pixel >= p.pixels || channel >= p.channels_out) continue;
    vec4 sum = vec4(0.0);
    FOR(k, SPLIT) {
      const uint first = (k * TILE_M + q / N_VEC4) * ROW_Y + vec4_index * 4u;
      for (uint j = 0u; j < 4u; ++j) sum[j] += staging[first + j];
    }
    sum = scale_sums(pixel, channel, sum);
    for (uint j = 0u; j < 4u; ++j) sum[j] += channel_bias(channel + j) + element_bias(pixel, channel + j);
    store_vec4(y_index(pixel_position(pixel)), channel, sum);
  }
}
