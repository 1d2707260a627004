// fp16 GEMM of medium size on cooperative matrices in the layout of include/mma.glsl, without shared memory for the operands. Also
// convolutions as implicit GEMM.
//
// x: rows, or the channels of a pixel, in whole vec8s. w: packed as [columns / 8][K / 32][taps][32][8], in fragment order. The order of the
// 32 K steps of a chunk does not matter, so a lane uses 8 contiguous ones. Without MATRIX: M = pixels of all images; K = for each 32
// channels, one tap after another. Workgroup = TILE_M rows (M) x TILE_N columns (N); a subgroup computes SUB_M x SUB_N, and SPLIT subgroups
// split K.
//   for each UNROLL chunks of 32 of this split:
//     load 16-byte pieces of x and w (PREFETCH: for the next chunks, before the current ones are multiplied); acc += A B
//   reduce over SPLIT in shared memory; bias, epilogue, store
// KNOWN_K: a large GEMM specialised for its K and row stride. It loads each line of the next chunk into the registers that were just
// consumed.
//
// Requires matrices in that layout, or their emulation (has_or_emulates_mma). Selected in cpp/operators/conv_gemm/mma_plans.cpp;
// conv_gemm_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#if !EMULATED
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // one subgroup of 32 per SUB_M x SUB_N tile and split of K
layout(constant_id = 1) const uint TILE_M = 32u;
layout(constant_id = 2) const uint TILE_N = 32u;
layout(constant_id = 3) const uint SUB_M = 32u;
layout(constant_id = 4) const uint SUB_N = 32u;
layout(constant_id = 5) const uint UNROLL = 1u;  // number of chunks of 32 K steps loaded at once
layout(constant_id = 6) const uint PREFETCH = 0u;  // 1: prefetch the next chunks
layout(constant_id = 7) const uint NO_K_TAIL = 0u;  // 1: all subgroups have equal, full chunks
#if !MATRIX
layout(constant_id = 8) const uint KERNEL_H = 1u;
layout(constant_id = 9) const uint KERNEL_W = 3u;
layout(constant_id = 10) const uint STEP_H = 1u;
layout(constant_id = 11) const uint STEP_W = 1u;
layout(constant_id = 12) const uint DILATION_H = 1u;
layout(constant_id = 13) const uint DILATION_W = 1u;
#endif
// K and row stride of a large GEMM without partial tiles or chunks. Its main loop loads each line of the next chunk into registers whose
// MMA has been issued. 0: any GEMM.
layout(constant_id = 14) const uint KNOWN_K = 0u;
layout(constant_id = 15) const uint KNOWN_STRIDE = 0u;
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

const uint ROWS = SUB_M / 16u, COLUMNS = SUB_N / 16u;
const uint ACROSS = TILE_N / SUB_N, TILES = TILE_M / SUB_M * ACROSS, SPLIT = INVOCATIONS / kLanes / TILES;
const uint N_VEC4 = TILE_N / 4u, ROW_Y = N_VEC4 + 1u;  // padded by one to avoid bank conflicts
// Output staging: all accumulators for the split-K reduction; for large tiles, 16 rows of each subgroup at a time.
const uint SUB_VEC4 = SUB_N / 4u, ROW_TILE_PITCH = SUB_VEC4 + 1u, STAGED_ROW_TILES = INVOCATIONS / kLanes * 16u * ROW_TILE_PITCH, ALL = SPLIT * TILE_M * ROW_Y;
shared uvec4 staging[KNOWN_K != 0u ? STAGED_ROW_TILES : ALL];

ACCUMULATOR_ARRAY(sums, ROWS * COLUMNS);

uint num_vec8, chunks;                      // number of vec8s along K (of one tap); number of chunks
uint columns[2 * COLUMNS];                  // start of this lane's columns of w, in vec8s
#if MATRIX
uint rows[2 * ROWS];                        // start of this lane's rows of x, in vec8s
#else
struct Pixel {
  uint first;  // start of the pixel's image, in vec8s
  ivec2 from;  // input row and column of the pixel's first tap
};
Pixel pixels[2 * ROWS];
#endif
// Operand registers: UNROLL chunks of each operand, double-buffered with PREFETCH.
uvec4 regs_x[(1u + PREFETCH) * UNROLL * 2u * ROWS], regs_w[(1u + PREFETCH) * UNROLL * 2u * COLUMNS];
#include "include/mma_main_loop.glsl"

#if EMULATED
#define STORE_ACCUMULATOR(matrix, at, row)                                                                     \
  FOR(c, kComponents) staging[(at) + ACC_ROW(c) * (row) + ACC_COLUMN(c) / 4u][ACC_COLUMN(c) % 4u] = floatBitsToUint(matrix[c])
#else
#define STORE_ACCUMULATOR(matrix, at, row) coopMatStore(matrix, staging, at, row, gl_CooperativeMatrixLayoutRowMajor)
#endif

#if MATRIX
#define IN_K_RANGE(chunk, vec8_index) (vec8_index < num_vec8)
#define VEC8_INDEX(chunk) (chunk * 4u + LANE % 4u)
#define LOAD_X_LINE(i) x[rows[i] + at_x]
#else
const uint TAPS = KERNEL_H * KERNEL_W;
#define IN_K_RANGE(chunk, vec8_index) (chunk < chunks && vec8_index < num_vec8)
#define VEC8_INDEX(chunk) (chunk / TAPS * 4u + LANE % 4u)
#define LOAD_X_LINE(i) load_pixel_line(pixels[i], chunk % TAPS, at_x)

// Loads a vec8 of channels of the pixel that a tap reads; zero outside the image.
uvec4 load_pixel_line(Pixel pixel, uint tap, uint at_x) {
  const ivec2 position = pixel.from + ivec2(tap / KERNEL_W * DILATION_H, tap % KERNEL_W * DILATION_W);
  const bool inside = all(greaterThanEqual(position, ivec2(0))) && all(lessThan(position, ivec2(p.in_h, p.in_w)));
  const uint at = (uint(position.x) * p.x_stride_h + uint(position.y) * p.x_stride_w) >> 3;
  const uvec4 line = x[inside ? pixel.first + at + at_x : pixel.first];
  return inside ? line : uvec4(0u);
}
#endif

// Loads UNROLL chunks, starting at `begin`, into buffer `to`. Branch-free, so that all loads are in flight at once: past the end, the last
// vec8 is repeated and counts as zero.
void load_chunks(uint to, uint begin) {
  FOR(k, UNROLL) {
    const uint chunk = begin + k, vec8_index = VEC8_INDEX(chunk), at = to * UNROLL + k;
    const uint at_w = (NO_K_TAIL != 0u ? chunk : min(chunk, chunks - 1u)) * kLanes, at_x = NO_K_TAIL != 0u ? vec8_index : min(vec8_index, num_vec8 - 1u);
    FOR(i, 2u * COLUMNS) regs_w[at * 2u * COLUMNS + i] = w[columns[i] + at_w];
    FOR(i, 2u * ROWS) regs_x[at * 2u * ROWS + i] = LOAD_X_LINE(i);
    if (NO_K_TAIL == 0u && !IN_K_RANGE(chunk, vec8_index)) {
      FOR(i, 2u * COLUMNS) regs_w[at * 2u * COLUMNS + i] = uvec4(0u);
      FOR(i, 2u * ROWS) regs_x[at * 2u * ROWS + i] = uvec4(0u);
    }
  }
}

// Accumulates the chunks in buffer `from`.
void multiply_chunks(uint from) {
  FOR(k, UNROLL) FOR(k_half, 2u) {
    const uint at = from * UNROLL + k;
    MATRIX_A_ARRAY(left, ROWS);
    FOR(i, ROWS) SET_FRAGMENT_LINES(left[i], regs_x, (at * ROWS + i) * 2u, k_half)
    FOR(j, COLUMNS) {
      MATRIX_B(right);
      SET_FRAGMENT_LINES(right, regs_w, (at * COLUMNS + j) * 2u, k_half)
      FOR(i, ROWS) MMA(left[i], right, sums[i * COLUMNS + j]);
    }
  }
}

#if MATRIX
uint first_x, first_w;  // start of this lane's first lines, in vec8s; the other lines follow at constant strides

void load_a_lines(uint chunk) {
  FOR(i, 2u * ROWS) regs_x[i] = x[first_x + i * KNOWN_STRIDE + chunk * 4u];
}

void load_b_lines(uint j, uint chunk) {
  FOR(i, 2u) regs_w[2u * j + i] = w[first_w + ((2u * j + i) * (KNOWN_K / 32u) + chunk) * kLanes];
}

void multiply_refilling() {
  const uint last = KNOWN_K / 32u - 1u;
  load_a_lines(0u);
  FOR(j, COLUMNS) load_b_lines(j, 0u);
  for (uint chunk = 0u; chunk <= last; ++chunk) {
    const uint next = min(chunk + 1u, last);
    FOR(k_half, 2u) {
      MATRIX_A_ARRAY(left, ROWS);
      FOR(i, ROWS) SET_FRAGMENT_LINES(left[i], regs_x, 2u * i, k_half)
      if (k_half == 1u) load_a_lines(next);
      FOR(j, COLUMNS) {
        MATRIX_B(right);
        SET_FRAGMENT_LINES(right, regs_w, 2u * j, k_half)
        FOR(i, ROWS) MMA(left[i], right, sums[i * COLUMNS + j]);
        if (k_half == 1u) load_b_lines(j, next);
      }
    }
  }
}
#endif

void locate_rows(uint first) {
  FOR(i, 2u * ROWS) {
    const uint row = min(first + LANE / 4u + i * 8u, p.pixels - 1u);
#if MATRIX
    rows[i] = (p.x_offset + row * p.x_stride_w) >> 3;
#else
    const uvec3 position = pixel_position(row);
    pixels[i].first = (p.x_offset + position.x * p.x_stride_n) >> 3;
    pixels[i].from = ivec2(position.yz * uvec2(STEP_H, STEP_W)) + ivec2(p.base_h, p.base_w);
#endif
  }
}

// Adds the bias and stores four outputs.
void store_outputs(uint pixel, uint channel, vec4 sum) {
  for (uint j = 0u; j < 4u; ++j) sum[j] += channel_bias(channel + j) + element_bias(pixel, channel + j);
  store_vec4(y_index(pixel_position(pixel)), channel, sum);
}

// Stores the outputs of a subgroup, 16 rows at a time. The loop is not unrolled, because the remaining accumulators fill the registers.
void store_row_tiles(uint first_row, uint first_column) {
  const uint row_tile = SUBGROUP_ID * 16u * ROW_TILE_PITCH;
  FOR(i, ROWS) {
    FOR(j, COLUMNS) STORE_ACCUMULATOR(sums[i * COLUMNS + j], row_tile + j * 4u, ROW_TILE_PITCH);
    SUBGROUP_BARRIER();
    [[dont_unroll]] for (uint q = LANE; q < 16u * SUB_VEC4; q += kLanes) {
      const uint row = q / SUB_VEC4, vec4_index = q % SUB_VEC4;
      store_outputs(first_row + i * 16u + row, first_column + vec4_index * 4u, uintBitsToFloat(staging[row_tile + row * ROW_TILE_PITCH + vec4_index]));
    }
    SUBGROUP_BARRIER();
  }
}

void main() {
  const uint first_row = grid_group().x * TILE_M, first_column = grid_group().y * TILE_N;
  const uint split = SUBGROUP_ID / TILES, tile = SUBGROUP_ID % TILES;
  const uint tile_row = tile / ACROSS * SUB_M, tile_column = tile % ACROSS * SUB_N;
  const uint blocks = (p.channels_out + 7u) / 8u;
  num_vec8 = (p.channels_in + 7u) / 8u, chunks = (num_vec8 + 3u) / 4u;
#if !MATRIX
  chunks *= TAPS;
#endif
  locate_rows(first_row + tile_row);
  FOR(i, 2u * COLUMNS) columns[i] = (p.w_offset >> 3) + min((first_column + tile_column) / 8u + i, blocks - 1u) * chunks * kLanes + LANE;
  FOR(i, ROWS * COLUMNS) CLEAR_ACCUMULATOR(sums[i]);
#if MATRIX
  if (KNOWN_K != 0u) {
    first_x = (p.x_offset + (first_row + tile_row + LANE / 4u) * KNOWN_STRIDE) / 8u + LANE % 4u;
    first_w = p.w_offset / 8u + (first_column + tile_column) / 8u * (KNOWN_K / 32u) * kLanes + LANE;
    multiply_refilling();
    store_row_tiles(first_row + tile_row, first_column + tile_column);
    return;
  }
#endif
  run_main_loop(split);
  FOR(i, ROWS) FOR(j, COLUMNS)
    STORE_ACCUMULATOR(sums[i * COLUMNS + j], (split * TILE_M + tile_row + i * 16u) * ROW_Y + tile_column / 4u + j * 4u, ROW_Y);
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < TILE_M * N_VEC4; q += INVOCATIONS) {
    const uint pixel = first_row + q / N_VEC4, vec4_index = q % N_VEC4, channel = first_column + vec4_index * 4u;
    if (pixel >= p.pixels || channel >= p.channels_out) continue;
    vec4 sum = vec4(0.0);
    FOR(k, SPLIT) sum += uintBitsToFloat(staging[(k * TILE_M + q / N_VEC4) * ROW_Y + vec4_index]);
    store_outputs(pixel, channel, sum);
  }
}
