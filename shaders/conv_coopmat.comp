// GEMM and implicit-GEMM convolution on cooperative matrices of 16 x 16 x 16: fp16 or bf16 operands, float accumulators.
//
// See include/conv_gemm.glsl for the geometry. K runs over (tap, input channel), channels fastest; input channels are in contiguous
// vec8s. w: packed as [groups][kernel_taps][channels_in][channels_out rounded up to 8].
// Workgroup = TILE_M pixels (M) x TILE_N output channels (N), z = group. A subgroup computes SUB_M x SUB_N of them; SPLIT subgroups split
// the K tile.
//   prefetch the first K tile of TILE_K into registers
//   for each K tile:
//     store x and w to shared memory; barrier; prefetch the next K tile
//     for each 16 of K of this split: load A and B fragments; acc += A B
//     barrier
//   accumulators to shared memory, 16 rows at a time: reduce over SPLIT, bias, epilogue, store
//
// Requires VK_KHR_cooperative_matrix. Selected in conv_gemm_plan.cpp (make_coopmat_plan); conv_gemm_tiling.cpp chooses the tile.
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
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#define X_VEC4 1
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // one subgroup per SUB_M x SUB_N tile
layout(constant_id = 1) const uint TILE_M = 128u;
layout(constant_id = 2) const uint TILE_N = 128u;
layout(constant_id = 3) const uint SUB_M = 64u;
layout(constant_id = 4) const uint SUB_N = 64u;
layout(constant_id = 5) const uint TILE_K = 32u;    // a multiple of 16 * SPLIT; TILE_K / 8 divides INVOCATIONS
layout(constant_id = 6) const uint NO_K_TAIL = 0u;  // 1: TILE_K divides K, so there is no partial K tile
layout(constant_id = 7) const uint SPLIT = 1u;

// Arrays of vec8s.
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) readonly buffer W { uvec4 w[]; };
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif

const uint VEC8_X = TILE_K / 8u, VEC8_W = TILE_N / 8u;  // number of vec8s per tile row
const uint ROW_X = VEC8_X + 1u, ROW_W = VEC8_W + 1u;    // padded by one to avoid bank conflicts
const uint LOADS_X = TILE_M * VEC8_X / INVOCATIONS, LOADS_W = TILE_K * VEC8_W / INVOCATIONS;
const uint ROWS = SUB_M / 16u, COLUMNS = SUB_N / 16u;      // number of fragments per subgroup
const uint N_VEC4 = SUB_N / 4u, ROW_Y = N_VEC4 + 1u;       // output staging, 16 rows at a time
// An invocation stores four outputs of a row: adjacent if Y_VEC4, otherwise interleaved so that adjacent invocations store adjacent
// elements.
const uint APART = Y_VEC4 == 1 ? 1u : N_VEC4;
const uint SUBGROUP_TILES = (TILE_M / SUB_M) * (TILE_N / SUB_N), SUBGROUPS = SUBGROUP_TILES * SPLIT;
const uint FIRST_W = TILE_M * ROW_X;
const uint OPERAND_WORDS = FIRST_W + TILE_K * ROW_W, OUTPUT_WORDS = SUBGROUPS * 16u * ROW_Y;
shared uvec4 tile[OPERAND_WORDS > OUTPUT_WORDS ? OPERAND_WORDS : OUTPUT_WORDS];

uvec4 next_x[LOADS_X], next_w[LOADS_W];
uvec3 positions[LOADS_X];  // positions of this invocation's pixels
uint firsts[LOADS_X];      // start of their batch items in x
uint group_w;              // start of the group in w, in vec8s
coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[ROWS * COLUMNS];

// Row and column offset of this subgroup in the tile.
uint subgroup_row_offset() { return gl_SubgroupID % SUBGROUP_TILES / (TILE_N / SUB_N) * SUB_M; }
uint subgroup_column_offset() { return gl_SubgroupID % SUBGROUP_TILES % (TILE_N / SUB_N) * SUB_N; }

// Row of tile x that load i fills. With four vec8s per row, rows r and r + 4 are stored together to avoid bank conflicts.
uint tile_row_of_load(uint i) {
  const uint q = gl_LocalInvocationIndex + i * INVOCATIONS;
  return VEC8_X == 4u ? q / 32u * 8u + q % 32u / 8u + q / 4u % 2u * 4u : q / VEC8_X;
}

// Branch-free prefetch, so that all loads are in flight at once: out-of-range elements read a valid address and become zero. `whole`: the K
// tile is not partial.
void prefetch_k_tile(uint begin, uint k_size, bool whole) {
  const uint k_index = begin + gl_LocalInvocationIndex % VEC8_X * 8u;
  const bool in_k_range = whole || k_index < k_size;
#if MATRIX
  const uint channel = in_k_range ? k_index : 0u;
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = x[(firsts[i] + channel) >> 3];
#else
  const uint tap = k_index / p.channels_in, channel = k_index - tap * p.channels_in;
  const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
  bool inside[LOADS_X];
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
    uint at;
    inside[i] = find_input_offset(positions[i], th, tw, at) && in_k_range;
    next_x[i] = x[(firsts[i] + (inside[i] ? at + x_channel(channel) : 0u)) >> 3];
  }
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = inside[i] ? next_x[i] : uvec4(0u);
#endif
  const uint columns = (p.channels_out + 7u) / 8u;
  const uint column = min(grid_group().y * VEC8_W + gl_LocalInvocationIndex % VEC8_W, columns - 1u);
  const uint first_w = group_w + column, row = begin + gl_LocalInvocationIndex / VEC8_W, rows_apart = INVOCATIONS / VEC8_W;
  if (whole) {
    [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) next_w[i] = w[first_w + (row + i * rows_apart) * columns];
    return;
  }
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) next_w[i] = w[first_w + min(row + i * rows_apart, k_size - 1u) * columns];
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i)
    if (row + i * rows_apart >= k_size) next_w[i] = uvec4(0u);
#if MATRIX
  if (!in_k_range) [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = uvec4(0u);
#endif
}

void store_tiles() {
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) tile[tile_row_of_load(i) * ROW_X + gl_LocalInvocationIndex % VEC8_X] = next_x[i];
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) {
    const uint q = gl_LocalInvocationIndex + i * INVOCATIONS;
    tile[FIRST_W + q / VEC8_W * ROW_W + q % VEC8_W] = next_w[i];
  }
  barrier();
}

void multiply_k_tile() {
  [[unroll]] for (uint step = 0u; step < TILE_K / 16u / SPLIT; ++step) {
    const uint k = step * SPLIT + gl_SubgroupID / SUBGROUP_TILES;
    coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[ROWS];
    [[unroll]] for (uint i = 0u; i < ROWS; ++i)
      coopMatLoad(a[i], tile, (subgroup_row_offset() + i * 16u) * ROW_X + k * 2u, ROW_X, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0u; j < COLUMNS; ++j) {
      coopmat<MATRIX_FLOAT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b;
      coopMatLoad(b, tile, FIRST_W + k * 16u * ROW_W + subgroup_column_offset() / 8u + j * 2u, ROW_W, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint i = 0u; i < ROWS; ++i) sums[i * COLUMNS + j] = coopMatMulAdd(a[i], b, sums[i * COLUMNS + j]);
    }
  }
  barrier();  // wait until no subgroup is still reading the K tile
}

void main() {
  const uint first_pixel = grid_group().x * TILE_M;
  const uint k_size = TAPS_H * TAPS_W * p.channels_in;
  group_w = W_GROUP >> 3;
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
    positions[i] = pixel_position(min(first_pixel + tile_row_of_load(i), p.pixels - 1u));
    firsts[i] = p.x_offset + X_GROUP + positions[i].x * p.x_stride_n;
#if MATRIX
    firsts[i] += positions[i].z * p.x_stride_w;
#endif
  }
  [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i)
    sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
  const uint whole = NO_K_TAIL != 0u ? k_size : k_size / TILE_K * TILE_K;
  prefetch_k_tile(0u, k_size, NO_K_TAIL != 0u || whole > 0u);
  for (uint begin = TILE_K; begin < whole; begin += TILE_K) {
    store_tiles();
    prefetch_k_tile(begin, k_size, true);
    multiply_k_tile();
  }
  if (NO_K_TAIL == 0u && whole > 0u && whole < k_size) {  // partial K tile
    store_tiles();
    prefetch_k_tile(whole, k_size, false);
    multiply_k_tile();
  }
  store_tiles();
  multiply_k_tile();

  // Stage the output in shared memory, 16 rows per subgroup at a time: there, the position of each element is known, which bias and
  // epilogue need, and the splits of K are reduced.
  const uint subgroup_tile = gl_SubgroupID % SUBGROUP_TILES, split = gl_SubgroupID / SUBGROUP_TILES;
  const uint row_tile = gl_SubgroupID * 16u * ROW_Y, first_row_tile = subgroup_tile * 16u * ROW_Y, column = gl_SubgroupInvocationID % N_VEC4;
  const uint channel = grid_group().y * TILE_N + subgroup_column_offset() + column * (Y_VEC4 == 1 ? 4u : 1u);
  vec4 bias;
  for (uint j = 0u; j < 4u; ++j) bias[j] = channel_bias(channel + j * APART);
  [[unroll]] for (uint i = 0u; i < ROWS; ++i) {
    [[unroll]] for (uint j = 0u; j < COLUMNS; ++j)
      coopMatStore(sums[i * COLUMNS + j], tile, row_tile + j * 4u, ROW_Y, gl_CooperativeMatrixLayoutRowMajor);
    if (SPLIT > 1u) {
      barrier();  // split-K subgroups read each other's sums
    } else {
      subgroupMemoryBarrierShared();
      subgroupBarrier();
    }
    const uint rows_at_once = gl_SubgroupSize / N_VEC4;
    for (uint row = split * rows_at_once + gl_SubgroupInvocationID / N_VEC4; row < 16u; row += rows_at_once * SPLIT) {
      const uint pixel = first_pixel + subgroup_row_offset() + i * 16u + row;
      if (pixel >= p.pixels || channel >= p.channels_out) break;
      vec4 sum = bias;
      [[unroll]] for (uint k = 0u; k < SPLIT; ++k) {
        const uint first = first_row_tile + k * SUBGROUP_TILES * 16u * ROW_Y + row * ROW_Y;
#if Y_VEC4
        sum += uintBitsToFloat(tile[first + column]);
#else
        for (uint j = 0u; j < 4u; ++j) sum[j] += uintBitsToFloat(tile[first + (column + j * APART) / 4u][column % 4u]);
#endif
      }
      const uint at = y_index(pixel_position(pixel)) + Y_GROUP;
      for (uint j = 0u; j < 4u; ++j) sum[j] += element_bias(pixel, channel + j * APART);
#if Y_VEC4
      const uint index = at + y_channel(channel);
      SET_Y4(index >> 2, apply_epilogue(sum, index));
#else
      for (uint j = 0u; j < 4u; ++j) {
        const uint index = at + y_channel(channel + j * APART);
        if (channel + j * APART < p.channels_out) SET_Y(index, apply_epilogue(sum[j], index));
      }
#endif
    }
    if (SPLIT > 1u)
      barrier();  // wait until all invocations have read the sums; the next rows reuse the memory
    else
      subgroupBarrier();
  }
}
