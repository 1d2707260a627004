// fp32 GEMM on fp16 cooperative matrices: each float is split into fp16 hi and lo (include/split_fp16.glsl). Otherwise like gemm_mma.comp.
//
// x: rows of whole vec8s of fp16, or X_SPLIT: hi, lo and an exponent per row, from split_fp16_rows.comp. w: packed as [columns / 8][depth /
// 32][hi, lo][32][8], times 2^w_exponent. Accumulators are float.
// hi * hi is accumulated in one set of accumulators and hi * lo + lo * hi in another; LOW_FIRST: in the same set in successive passes,
// which leaves registers to prefetch more. lo * lo is below the error of a float and is omitted.
//   for each K chunk of 32 of this split: load x, w fragments (EARLY: of the next chunk); sums += hi hi; cross += hi lo + lo hi
//   reduce over SPLIT in shared memory; sums + cross / 4096; scale; bias, epilogue, store
// A row that fp16 cannot represent, or whose sum is not finite, is computed in plain float at the end.
//
// Requires has_fragments. Selected in cpp/operators/conv_gemm/mma_plans.cpp (halves_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#define HALVES 1
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"
#include "include/split_fp16.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // a subgroup of 32 per split of K
layout(constant_id = 1) const uint TILE_P = 32u;
layout(constant_id = 2) const uint TILE_C = 32u;
layout(constant_id = 3) const uint SUB_P = 32u;
layout(constant_id = 4) const uint SUB_C = 32u;
layout(constant_id = 5) const uint AHEAD = 1u;  // chunks of 32 K steps loaded at once
layout(constant_id = 6) const uint EARLY = 0u;  // 1: prefetch the next chunks
layout(constant_id = 7) const uint WHOLE = 0u;  // 1: equal, full chunks for all subgroups
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
const uint HALVES_X = 2u;
#else
const uint HALVES_X = 1u;
#endif
const uint PASSES = LOW_FIRST != 0u ? HALVES_X + 1u : 1u;
const uint PARTS_X = LOW_FIRST != 0u ? 1u : HALVES_X, PARTS_W = 2u - LOW_FIRST;  // hi and lo loaded together
const uint ROWS = SUB_P / 16u, COLUMNS = SUB_C / 16u;
const uint ACROSS = TILE_C / SUB_C, TILES = TILE_P / SUB_P * ACROSS, SPLIT = INVOCATIONS / kLanes / TILES;
const uint QUADS = TILE_C / 4u, ROW_Y = TILE_C + 4u;  // padded to avoid bank conflicts
const uint CHUNK_W = 64u;                             // vec8s per chunk of 8 columns: 32 hi, then 32 lo
const uint NOT_SPLIT = 0x80000000u;                   // marks rows stored as fp32
shared float meeting[SPLIT * TILE_P * ROW_Y];

SUMS_OF(sums, ROWS * COLUMNS);
SUMS_OF(cross, ROWS * COLUMNS);  // hi * lo + lo * hi

uint eights, chunks;                        // vec8s along K, chunks
uint rows[2 * ROWS], columns[2 * COLUMNS];  // start of this lane's lines, in vec8s
// Operand registers: AHEAD chunks of each, double-buffered with EARLY.
uvec4 held_x[(1u + EARLY) * AHEAD * PARTS_X * 2u * ROWS], held_w[(1u + EARLY) * AHEAD * PARTS_W * 2u * COLUMNS];
uint low_x = 0u, low_w = 0u;  // 1: this pass uses the lo parts
#include "include/mma_main_loop.glsl"

// Register index of line i; `low` is 1 for the lo parts if both are loaded.
uint place_x(uint at, uint low, uint i) { return (at * PARTS_X + low) * 2u * ROWS + i; }
uint place_w(uint at, uint low, uint i) { return (at * PARTS_W + low) * 2u * COLUMNS + i; }

// Loads AHEAD chunks from `begin` on into buffer `to`. Branch-free, so that all loads are in flight at once: past the end the last vec8 is
// repeated, and counts as zero.
void read(uint to, uint begin) {
  FOR(k, AHEAD) {
    const uint chunk = begin + k, eight = chunk * 4u + LANE % 4u, at = to * AHEAD + k;
    const uint at_w = (WHOLE != 0u ? chunk : min(chunk, chunks - 1u)) * CHUNK_W, at_x = WHOLE != 0u ? eight : min(eight, eights - 1u);
    FOR(low, PARTS_W) FOR(i, 2u * COLUMNS) held_w[place_w(at, low, i)] = w[columns[i] + at_w + (low_w + low) * kLanes];
    FOR(low, PARTS_X) FOR(i, 2u * ROWS) held_x[place_x(at, low, i)] = x[rows[i] + at_x + (low_x + low) * eights];
    if (WHOLE == 0u && eight >= eights) {
      FOR(i, PARTS_W * 2u * COLUMNS) held_w[place_w(at, 0u, i)] = uvec4(0u);
      FOR(i, PARTS_X * 2u * ROWS) held_x[place_x(at, 0u, i)] = uvec4(0u);
    }
  }
}

// Accumulates the chunks in buffer `from`.
void multiply(uint from) {
  FOR(k, AHEAD) FOR(part, 2u) {
    const uint at = from * AHEAD + k;
    LEFT_OF(left, PARTS_X * ROWS);
    FOR(i, PARTS_X * ROWS) SET_LINES(left[i], held_x, place_x(at, i / ROWS, i % ROWS * 2u), part)
    FOR(j, COLUMNS) {
      RIGHT_OF(right, PARTS_W);
      FOR(low, PARTS_W) SET_LINES(right[low], held_w, place_w(at, low, j * 2u), part)
      FOR(i, ROWS) {
        MULTIPLY_ADD(left[i], right[0], sums[i * COLUMNS + j]);
        if (PARTS_W == 2u) MULTIPLY_ADD(left[i], right[PARTS_W - 1u], cross[i * COLUMNS + j]);
        if (PARTS_X == 2u) MULTIPLY_ADD(left[(PARTS_X - 1u) * ROWS + i], right[0], cross[i * COLUMNS + j]);
      }
    }
  }
}

// fp32 fallback: accumulates a vec8 of a row times four columns; columns past the last repeat the last.
void add_plain(uint first, uint eight, uint column[4], float scale, inout vec4 sum) {
#if X_SPLIT
  const uvec4 low_x = x[first + 2u * eight], high_x = x[first + 2u * eight + 1u];
#else
  const uvec4 whole_x = x[first + eight];
#endif
  const uint at = eight / 4u * CHUNK_W + eight % 4u;
  FOR(j, 4u) {
    const uvec4 high_w = w[column[j] + at], low_w = w[column[j] + at + kLanes];
    FOR(i, 8u) {
#if X_SPLIT
      const float factor = uintBitsToFloat(i < 4u ? low_x[i % 4u] : high_x[i % 4u]);
#else
      const float factor = unpackHalf2x16(whole_x[i / 2u])[i % 2u];
#endif
      const float high = unpackHalf2x16(high_w[i / 2u])[i % 2u], low = unpackHalf2x16(low_w[i / 2u])[i % 2u];
      // The zero padding of rows is skipped: 0 * inf would be NaN.
      if (eight * 8u + i < p.channels_in) sum[j] = fma(factor, (high + low / kLow) * scale, sum[j]);
    }
  }
}

// fp32 fallback for a row that starts at vec8 `first`: four sums from `channel` on. One such row delays its whole workgroup, so four vec8s
// are unrolled to keep loads in flight.
vec4 plain(uint first, uint channel) {
  vec4 sum = vec4(0.0);
  uint column[4];
  for (uint j = 0u; j < 4u; ++j) {
    const uint own = min(channel + j, p.channels_out - 1u);
    column[j] = (p.w_offset >> 3) + own / 8u * chunks * CHUNK_W + own % 8u * 4u;
  }
  const float scale = power_of_two(p.w_exponent);
  uint eight = 0u;
  for (; eight + 4u <= eights; eight += 4u) FOR(k, 4u) add_plain(first, eight + k, column, scale, sum);
  for (; eight < eights; ++eight) add_plain(first, eight, column, scale, sum);
  return sum;
}

// Scales the sums of a row for four columns, or recomputes them in fp32.
vec4 whole_sums(uint pixel, uint channel, vec4 sum) {
  const uint first = (p.x_offset + pixel * p.x_stride_w) >> 3;
#if X_SPLIT
  const uint exponent = x[first + 2u * eights].x;
  if (exponent == NOT_SPLIT) return plain(first, channel);
  const int by = p.w_exponent + int(exponent);
#else
  const uvec4 special = uvec4(0x7f800000u);
  if (any(equal(floatBitsToUint(sum) & special, special))) return plain(first, channel);
  const int by = p.w_exponent;
#endif
  return sum * power_of_two(by / 2) * power_of_two(by - by / 2);
}

void main() {
  const uint first_row = grid_group().x * TILE_P, first_column = grid_group().y * TILE_C;
  const uint share = SUBGROUP_NUMBER / TILES, tile = SUBGROUP_NUMBER % TILES;
  const uint tile_row = tile / ACROSS * SUB_P, tile_column = tile % ACROSS * SUB_C;
  const uint blocks = (p.channels_out + 7u) / 8u;
  eights = (p.channels_in + 7u) / 8u, chunks = (eights + 3u) / 4u;
  FOR(i, 2u * ROWS) {
    const uint row = first_row + tile_row + LANE / 4u + i * 8u;
    rows[i] = (p.x_offset + min(row, p.pixels - 1u) * p.x_stride_w) >> 3;
  }
  FOR(i, 2u * COLUMNS)
    columns[i] = (p.w_offset >> 3) + min((first_column + tile_column) / 8u + i, blocks - 1u) * chunks * CHUNK_W + LANE;
  FOR(i, ROWS * COLUMNS) {
    CLEAR_SUMS(sums[i]);
    CLEAR_SUMS(cross[i]);
  }
  [[dont_unroll]] for (uint pass = 0u; pass < PASSES; ++pass) {
    if (LOW_FIRST != 0u) {
      low_w = pass == 0u ? 1u : 0u;
      low_x = pass + 1u < PASSES ? pass : 0u;
      if (pass > 0u && pass + 1u == PASSES) FOR(i, ROWS * COLUMNS) FOR(c, kComponents) sums[i][c] /= kLow;
    }
    multiply_all(share);
  }
  FOR(i, ROWS) FOR(j, COLUMNS) FOR(c, kComponents)
    meeting[(share * TILE_P + tile_row + i * 16u + ROW_OF(c)) * ROW_Y + tile_column + j * 16u + COLUMN_OF(c)] =
        sums[i * COLUMNS + j][c] + (LOW_FIRST != 0u ? 0.0 : cross[i * COLUMNS + j][c] / kLow);
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < TILE_P * QUADS; q += INVOCATIONS) {
    const uint pixel = first_row + q / QUADS, quad = q % QUADS, channel = first_column + quad * 4u;
    if (pixel >= p.pixels || channel >= p.channels_out) continue;
    vec4 sum = vec4(0.0);
    FOR(k, SPLIT) {
      const uint first = (k * TILE_P + q / QUADS) * ROW_Y + quad * 4u;
      for (uint j = 0u; j < 4u; ++j) sum[j] += meeting[first + j];
    }
    sum = whole_sums(pixel, channel, sum);
    for (uint j = 0u; j < 4u; ++j) sum[j] += channel_bias(channel + j) + element_bias(pixel, channel + j);
    store_four(y_index(place_of(pixel)), channel, sum);
  }
}
