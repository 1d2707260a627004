// int8 GEMM on cooperative matrices: y = (x - x_zero) (w - w_zero), accumulated as int32 in tiles of 16 x 16 x 32.
//
// x: [rows][k_size], w: [columns][k_size], both bytes in 16-byte pieces. y: int32 [rows, columns]. Unsigned bytes become signed by flipping
// the sign bit, that is, subtracting 128. The zero points and these offsets are applied at the end, using the row sums of x and the column
// sums of w (x_sums, w_sums).
// Workgroup = TILE_M rows x TILE_N columns; a subgroup computes SUB_M x SUB_N.
//   prefetch the first K tile of TILE_K
//   for each K tile: store to shared memory; barrier; prefetch the next K tile; load fragments; acc += A B; barrier
//   accumulators through shared memory, 16 rows at a time; correct by zero points; store
//
// Requires VK_KHR_cooperative_matrix with int8. Selected in cpp/operators/conv_gemm/int8_gemm.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#define GRID_AXES 3
#include "include/grid.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // one subgroup per SUB_M x SUB_N tile
layout(constant_id = 1) const uint TILE_M = 128u;
layout(constant_id = 2) const uint TILE_N = 128u;
layout(constant_id = 3) const uint SUB_M = 64u;
layout(constant_id = 4) const uint SUB_N = 64u;
layout(constant_id = 5) const uint TILE_K = 64u;    // 64 or 128
layout(constant_id = 6) const uint NO_K_TAIL = 0u;  // 1: TILE_K divides K, so there is no partial K tile

layout(binding = 0) readonly buffer X { uvec4 x[]; };  // [rows][K], 16 bytes per element
layout(binding = 1) readonly buffer W { uvec4 w[]; };  // [columns][K]
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { ivec4 y[]; };
#else
layout(binding = 2) writeonly buffer Y { int y[]; };
#endif
#if ADD_X_SUMS
layout(binding = 3) readonly buffer XSums { int x_sums[]; };  // row sums
#endif
#if ADD_W_SUMS
layout(binding = 4) readonly buffer WSums { int w_sums[]; };  // column sums
#endif
#if X_ZERO
layout(binding = 5) readonly buffer XZero { int x_zero[]; };
#endif
#if W_ZERO
layout(binding = 6) readonly buffer WZero { int w_zero[]; };
#endif
layout(push_constant) uniform parameter {
  uint rows, columns, k_size;
  uint pad_rows;                       // row stride of x and w in 16-byte pieces
  uint first_row;                      // first row of x and y in this GEMM
  uint x_zero_first, x_zero_row, w_zero_first, w_zero_column;
  uint x_offset, w_offset, y_offset;    // x_offset: X_UNIT per 16 bytes; w_offset: in words; y_offset: in elements
  uint x_sums_offset, w_sums_offset;
} p;

const uint PIECES = TILE_K / 16u;                         // number of 16-byte pieces per tile row
const uint ROW = PIECES + 1u;                             // padded by one to avoid bank conflicts
const uint LOADS_X = TILE_M * PIECES / INVOCATIONS, LOADS_W = TILE_N * PIECES / INVOCATIONS;
const uint ROWS = SUB_M / 16u, COLUMNS = SUB_N / 16u;    // number of fragments per subgroup
const uint N_VEC4 = SUB_N / 4u, ROW_Y = N_VEC4 + 1u;     // output staging, 16 rows at a time
const uint SUBGROUPS = (TILE_M / SUB_M) * (TILE_N / SUB_N);
const uint FIRST_W = TILE_M * ROW;
const uint OPERAND_WORDS = FIRST_W + TILE_N * ROW, OUTPUT_WORDS = SUBGROUPS * 16u * ROW_Y;
shared uvec4 tile[OPERAND_WORDS > OUTPUT_WORDS ? OPERAND_WORDS : OUTPUT_WORDS];

uvec4 next_x[LOADS_X], next_w[LOADS_W];

// Tile row that load i fills. With four pieces per row, rows r and r + 4 are stored together to avoid bank conflicts.
uint tile_row_of_load(uint i) {
  const uint q = gl_LocalInvocationIndex + i * INVOCATIONS;
  return PIECES == 4u ? q / 32u * 8u + q % 32u / 8u + q / 4u % 2u * 4u : q / PIECES;
}

const uint FLIP_X = X_SIGNED == 1 ? 0u : 0x80808080u, FLIP_W = W_SIGNED == 1 ? 0u : 0x80808080u;

// Branch-free prefetch, so that all loads are in flight at once: out-of-range elements read a valid address and become zero.
void prefetch_k_tile(uint begin, uint first_row, uint first_column) {
  const uint pieces = p.pad_rows;
  if (NO_K_TAIL != 0u) begin = min(begin, pieces - PIECES);
  const uint piece = begin + gl_LocalInvocationIndex % PIECES, at = NO_K_TAIL != 0u ? piece : min(piece, pieces - 1u);
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = x[p.x_offset / X_UNIT + (p.first_row + min(first_row + tile_row_of_load(i), p.rows - 1u)) * p.pad_rows + at];
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) next_w[i] = w[p.w_offset / 4u + min(first_column + tile_row_of_load(i), p.columns - 1u) * p.pad_rows + at];
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = NO_K_TAIL != 0u || piece < pieces ? next_x[i] ^ FLIP_X : uvec4(0u);
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) next_w[i] = next_w[i] ^ FLIP_W;
}

int row_zero_point(uint row) {
#if X_ZERO
  return x_zero[p.x_zero_first + row * p.x_zero_row] - int(FLIP_X & 0x80u);
#else
  return -int(FLIP_X & 0x80u);
#endif
}

int column_zero_point(uint column) {
#if W_ZERO
  return w_zero[p.w_zero_first + column * p.w_zero_column] - int(FLIP_W & 0x80u);
#else
  return -int(FLIP_W & 0x80u);
#endif
}

void main() {
  const uvec3 group = grid_group((p.rows + TILE_M - 1u) / TILE_M, (p.columns + TILE_N - 1u) / TILE_N);
  if (is_past_grid(group, 1u)) return;
  const uint first_row = group.x * TILE_M, first_column = group.y * TILE_N;
  const uint sub_r = gl_SubgroupID / (TILE_N / SUB_N) * SUB_M, sub_c = gl_SubgroupID % (TILE_N / SUB_N) * SUB_N;

  coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[ROWS * COLUMNS];
  [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; ++i) sums[i] = coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
  prefetch_k_tile(0u, first_row, first_column);
  for (uint begin = 0u; begin < p.pad_rows; begin += PIECES) {
    [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) tile[tile_row_of_load(i) * ROW + gl_LocalInvocationIndex % PIECES] = next_x[i];
    [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) tile[FIRST_W + tile_row_of_load(i) * ROW + gl_LocalInvocationIndex % PIECES] = next_w[i];
    barrier();
    prefetch_k_tile(begin + PIECES, first_row, first_column);
    [[unroll]] for (uint k = 0u; k < PIECES / 2u; ++k) {
      coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA> a[ROWS];
      [[unroll]] for (uint i = 0u; i < ROWS; ++i)
        coopMatLoad(a[i], tile, (sub_r + i * 16u) * ROW + k * 2u, ROW, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint j = 0u; j < COLUMNS; ++j) {
        coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB> b;
        coopMatLoad(b, tile, FIRST_W + (sub_c + j * 16u) * ROW + k * 2u, ROW, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint i = 0u; i < ROWS; ++i) sums[i * COLUMNS + j] = coopMatMulAdd(a[i], b, sums[i * COLUMNS + j]);
      }
    }
    barrier();  // wait until no invocation is still reading the K tile
  }

  // Stage the output in shared memory, 16 rows per subgroup at a time, so that the position of every element is known.
  const uint row_tile = gl_SubgroupID * 16u * ROW_Y, vec4_index = gl_SubgroupInvocationID % N_VEC4, column = first_column + sub_c + vec4_index * 4u;
  ivec4 column_sums = ivec4(0), column_zeros = ivec4(0);
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
#if ADD_W_SUMS
    column_sums[j] = w_sums[p.w_sums_offset + min(column + j, p.columns - 1u)];
#endif
#if ADD_X_SUMS
    column_zeros[j] = column_zero_point(min(column + j, p.columns - 1u));
#endif
  }
  [[unroll]] for (uint i = 0u; i < ROWS; ++i) {
    [[unroll]] for (uint j = 0u; j < COLUMNS; ++j)
      coopMatStore(sums[i * COLUMNS + j], tile, row_tile + j * 4u, ROW_Y, gl_CooperativeMatrixLayoutRowMajor);
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    for (uint at = gl_SubgroupInvocationID / N_VEC4; at < 16u; at += gl_SubgroupSize / N_VEC4) {
      const uint row = first_row + sub_r + i * 16u + at;
      if (row >= p.rows || column >= p.columns) break;
      ivec4 v = ivec4(tile[row_tile + at * ROW_Y + vec4_index]);
#if ADD_X_SUMS
      v -= column_zeros * x_sums[p.x_sums_offset + p.first_row + row];
#endif
#if ADD_W_SUMS
      const int zero = row_zero_point(row);
      v -= zero * column_sums;
#if ADD_X_SUMS
      v += zero * int(p.k_size) * column_zeros;
#endif
#endif
      const uint to = p.y_offset + (p.first_row + row) * p.columns + column;
#if Y_VEC4
      y[to >> 2] = v;
#else
      for (uint j = 0u; j < 4u; ++j)
        if (column + j < p.columns) y[to + j] = v[j];
#endif
    }
    subgroupBarrier();
  }
}
