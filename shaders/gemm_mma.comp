// fp16 GEMM of medium size on cooperative matrices in the layout of include/mma.glsl, without shared memory for the operands. Also
// convolutions as implicit GEMM.
//
// x: rows, or channels, of whole vec8s. w: packed as [columns / 8][depth / 32][taps][32][8], in fragment order. The order of the 32 K steps
// of a chunk does not matter, so a lane uses 8 contiguous ones. Without MATRIX: M = pixels of all images; K = for each 32 channels, one tap
// after another. Workgroup = TILE_P rows (M) x TILE_C columns (N); a subgroup computes SUB_P x SUB_C, and SPLIT subgroups split K.
//   for each AHEAD chunks of 32 of this split:
//     load 16-byte pieces of x and w (EARLY: for the next chunks, before the current ones are multiplied); acc += A B
//   reduce over SPLIT in shared memory; bias, epilogue, store
// KNOWN_DEPTH: a large GEMM specialised for its K and row stride. It loads each line of the next chunk into the registers that were just
// consumed.
//
// Requires has_fragments. Selected in cpp/operators/conv_gemm/mma_plans.cpp; conv_gemm_tiling.cpp chooses the tile.
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
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // a subgroup of 32 for each split of K
layout(constant_id = 1) const uint TILE_P = 32u;
layout(constant_id = 2) const uint TILE_C = 32u;
layout(constant_id = 3) const uint SUB_P = 32u;
layout(constant_id = 4) const uint SUB_C = 32u;
layout(constant_id = 5) const uint AHEAD = 1u;  // number of chunks of 32 K steps loaded at once
layout(constant_id = 6) const uint EARLY = 0u;  // 1: prefetch the next chunks
layout(constant_id = 7) const uint WHOLE = 0u;  // 1: all subgroups have equal, full chunks
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
layout(constant_id = 14) const uint KNOWN_DEPTH = 0u;
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

const uint ROWS = SUB_P / 16u, COLUMNS = SUB_C / 16u;
const uint ACROSS = TILE_C / SUB_C, TILES = TILE_P / SUB_P * ACROSS, SPLIT = INVOCATIONS / kLanes / TILES;
const uint QUADS = TILE_C / 4u, ROW_Y = QUADS + 1u;  // padded by one to avoid bank conflicts
// Output staging: all accumulators, to reduce split-K; or for large tiles 16 rows of each subgroup at a time.
const uint SUB_QUADS = SUB_C / 4u, ROW_STRIP = SUB_QUADS + 1u, STRIPS = INVOCATIONS / kLanes * 16u * ROW_STRIP, ALL = SPLIT * TILE_P * ROW_Y;
shared uvec4 meeting[KNOWN_DEPTH != 0u ? STRIPS : ALL];

SUMS_OF(sums, ROWS * COLUMNS);

uint eights, chunks;                        // number of vec8s along K (of one tap), and of chunks
uint columns[2 * COLUMNS];                  // start of this lane's lines of w, in vec8s
#if MATRIX
uint rows[2 * ROWS];                        // start of this lane's lines of x, in vec8s
#else
struct Pixel {
  uint first;  // start of the pixel's image, in vec8s
  ivec2 from;  // input row and column of the pixel's first tap
};
Pixel pixels[2 * ROWS];
#endif
// Operand registers: AHEAD chunks of each operand, double-buffered with EARLY.
uvec4 held_x[(1u + EARLY) * AHEAD * 2u * ROWS], held_w[(1u + EARLY) * AHEAD * 2u * COLUMNS];
#include "include/mma_main_loop.glsl"

#if EMULATED
#define STORE_SUMS(matrix, at, row)                                                                     \
  FOR(c, kComponents) meeting[(at) + ROW_OF(c) * (row) + COLUMN_OF(c) / 4u][COLUMN_OF(c) % 4u] = floatBitsToUint(matrix[c])
#else
#define STORE_SUMS(matrix, at, row) coopMatStore(matrix, meeting, at, row, gl_CooperativeMatrixLayoutRowMajor)
#endif

#if MATRIX
#define HAS_STEPS(chunk, eight) (eight < eights)
#define EIGHT_OF(chunk) (chunk * 4u + LANE % 4u)
#define LINE_OF_X(i) x[rows[i] + at_x]
#else
const uint TAPS = KERNEL_H * KERNEL_W;
#define HAS_STEPS(chunk, eight) (chunk < chunks && eight < eights)
#define EIGHT_OF(chunk) (chunk / TAPS * 4u + LANE % 4u)
#define LINE_OF_X(i) line_of(pixels[i], chunk % TAPS, at_x)

// Loads a vec8 of channels of the pixel that a tap reads; zero outside the image.
uvec4 line_of(Pixel pixel, uint tap, uint at_x) {
  const ivec2 place = pixel.from + ivec2(tap / KERNEL_W * DILATION_H, tap % KERNEL_W * DILATION_W);
  const bool inside = all(greaterThanEqual(place, ivec2(0))) && all(lessThan(place, ivec2(p.in_h, p.in_w)));
  const uint at = (uint(place.x) * p.x_stride_h + uint(place.y) * p.x_stride_w) >> 3;
  const uvec4 line = x[inside ? pixel.first + at + at_x : pixel.first];
  return inside ? line : uvec4(0u);
}
#endif

// Loads AHEAD chunks from `begin` on into buffer `to`. Branch-free, so that all loads are in flight at once: past the end, the last vec8 is
// repeated and counts as zero.
void read(uint to, uint begin) {
  FOR(k, AHEAD) {
    const uint chunk = begin + k, eight = EIGHT_OF(chunk), at = to * AHEAD + k;
    const uint at_w = (WHOLE != 0u ? chunk : min(chunk, chunks - 1u)) * kLanes, at_x = WHOLE != 0u ? eight : min(eight, eights - 1u);
    FOR(i, 2u * COLUMNS) held_w[at * 2u * COLUMNS + i] = w[columns[i] + at_w];
    FOR(i, 2u * ROWS) held_x[at * 2u * ROWS + i] = LINE_OF_X(i);
    if (WHOLE == 0u && !HAS_STEPS(chunk, eight)) {
      FOR(i, 2u * COLUMNS) held_w[at * 2u * COLUMNS + i] = uvec4(0u);
      FOR(i, 2u * ROWS) held_x[at * 2u * ROWS + i] = uvec4(0u);
    }
  }
}

// Accumulates the chunks in buffer `from`.
void multiply(uint from) {
  FOR(k, AHEAD) FOR(part, 2u) {
    const uint at = from * AHEAD + k;
    LEFT_OF(left, ROWS);
    FOR(i, ROWS) SET_LINES(left[i], held_x, (at * ROWS + i) * 2u, part)
    FOR(j, COLUMNS) {
      RIGHT(right);
      SET_LINES(right, held_w, (at * COLUMNS + j) * 2u, part)
      FOR(i, ROWS) MULTIPLY_ADD(left[i], right, sums[i * COLUMNS + j]);
    }
  }
}

#if MATRIX
uint first_x, first_w;  // start of this lane's first lines, in vec8s; the other lines follow at constant strides

void read_left(uint chunk) {
  FOR(i, 2u * ROWS) held_x[i] = x[first_x + i * KNOWN_STRIDE + chunk * 4u];
}

void read_right(uint j, uint chunk) {
  FOR(i, 2u) held_w[2u * j + i] = w[first_w + ((2u * j + i) * (KNOWN_DEPTH / 32u) + chunk) * kLanes];
}

void multiply_in_place() {
  const uint last = KNOWN_DEPTH / 32u - 1u;
  read_left(0u);
  FOR(j, COLUMNS) read_right(j, 0u);
  for (uint chunk = 0u; chunk <= last; ++chunk) {
    const uint next = min(chunk + 1u, last);
    FOR(part, 2u) {
      LEFT_OF(left, ROWS);
      FOR(i, ROWS) SET_LINES(left[i], held_x, 2u * i, part)
      if (part == 1u) read_left(next);
      FOR(j, COLUMNS) {
        RIGHT(right);
        SET_LINES(right, held_w, 2u * j, part)
        FOR(i, ROWS) MULTIPLY_ADD(left[i], right, sums[i * COLUMNS + j]);
        if (part == 1u) read_right(j, next);
      }
    }
  }
}
#endif

void find_rows(uint first) {
  FOR(i, 2u * ROWS) {
    const uint row = min(first + LANE / 4u + i * 8u, p.pixels - 1u);
#if MATRIX
    rows[i] = (p.x_offset + row * p.x_stride_w) >> 3;
#else
    const uvec3 place = place_of(row);
    pixels[i].first = (p.x_offset + place.x * p.x_stride_n) >> 3;
    pixels[i].from = ivec2(place.yz * uvec2(STEP_H, STEP_W)) + ivec2(p.base_h, p.base_w);
#endif
  }
}

// Adds the bias and stores four outputs.
void finish(uint pixel, uint channel, vec4 sum) {
  for (uint j = 0u; j < 4u; ++j) sum[j] += channel_bias(channel + j) + element_bias(pixel, channel + j);
  store_four(y_index(place_of(pixel)), channel, sum);
}

// Stores the outputs of a subgroup, 16 rows at a time. The loop is not unrolled, because the remaining accumulators fill the registers.
void store_strips(uint first_row, uint first_column) {
  const uint strip = SUBGROUP_NUMBER * 16u * ROW_STRIP;
  FOR(i, ROWS) {
    FOR(j, COLUMNS) STORE_SUMS(sums[i * COLUMNS + j], strip + j * 4u, ROW_STRIP);
    SUBGROUP_MEETS();
    [[dont_unroll]] for (uint q = LANE; q < 16u * SUB_QUADS; q += kLanes) {
      const uint row = q / SUB_QUADS, quad = q % SUB_QUADS;
      finish(first_row + i * 16u + row, first_column + quad * 4u, uintBitsToFloat(meeting[strip + row * ROW_STRIP + quad]));
    }
    SUBGROUP_MEETS();
  }
}

void main() {
  const uint first_row = grid_group().x * TILE_P, first_column = grid_group().y * TILE_C;
  const uint share = SUBGROUP_NUMBER / TILES, tile = SUBGROUP_NUMBER % TILES;
  const uint tile_row = tile / ACROSS * SUB_P, tile_column = tile % ACROSS * SUB_C;
  const uint blocks = (p.channels_out + 7u) / 8u;
  eights = (p.channels_in + 7u) / 8u, chunks = (eights + 3u) / 4u;
#if !MATRIX
  chunks *= TAPS;
#endif
  find_rows(first_row + tile_row);
  FOR(i, 2u * COLUMNS) columns[i] = (p.w_offset >> 3) + min((first_column + tile_column) / 8u + i, blocks - 1u) * chunks * kLanes + LANE;
  FOR(i, ROWS * COLUMNS) CLEAR_SUMS(sums[i]);
#if MATRIX
  if (KNOWN_DEPTH != 0u) {
    first_x = (p.x_offset + (first_row + tile_row + LANE / 4u) * KNOWN_STRIDE) / 8u + LANE % 4u;
    first_w = p.w_offset / 8u + (first_column + tile_column) / 8u * (KNOWN_DEPTH / 32u) * kLanes + LANE;
    multiply_in_place();
    store_strips(first_row + tile_row, first_column + tile_column);
    return;
  }
#endif
  multiply_all(share);
  FOR(i, ROWS) FOR(j, COLUMNS)
    STORE_SUMS(sums[i * COLUMNS + j], (share * TILE_P + tile_row + i * 16u) * ROW_Y + tile_column / 4u + j * 4u, ROW_Y);
  barrier();
  for (uint q = gl_LocalInvocationIndex; q < TILE_P * QUADS; q += INVOCATIONS) {
    const uint pixel = first_row + q / QUADS, quad = q % QUADS, channel = first_column + quad * 4u;
    if (pixel >= p.pixels || channel >= p.channels_out) continue;
    vec4 sum = vec4(0.0);
    FOR(k, SPLIT) sum += uintBitsToFloat(meeting[(k * TILE_P + q / QUADS) * ROW_Y + quad]);
    finish(pixel, channel, sum);
  }
}
