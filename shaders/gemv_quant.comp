// GEMV and GEMM of a few rows with block-quantised weights, for GPUs. See include/quant_weights.glsl for the formula, the buffers and the
// fusions (NORMED, GATED).
//
// Workgroup = THREAD_GROUPS groups of GROUP_THREADS invocations by ROWS rows. A group computes COLUMNS columns: its invocations read 16
// bytes of each column, all from one block, and prefetch the next ones. With GATED, half of the columns belong to the gate's matrix.
//   for each 16 bytes of K of this invocation:
//     prefetch; w - zero is exact in float and is computed once for all rows
//     acc[m][n] += scale * sum of x[m, k] (w - zero)     // one multiplication by the scale per block
//   reduce over the group; epilogue; store
//
// Requires whole 16-byte pieces in rows and blocks. Selected in cpp/operators/conv_gemm/quant_gemm.cpp (make_gemv_tiling) if the weights
// are not packed for gemm_quant_mma.
#version 450
#if SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#extension GL_EXT_control_flow_attributes : require
#define W_UVEC4 1
#define X_VEC8 1
#define CPU_VARIANT 0
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x = GROUP_THREADS * THREAD_GROUPS) in;
#include "include/thread_group.glsl"
shared vec4 group_partials[GROUP_THREADS * THREAD_GROUPS + 16u];
PM_DEFINE_GROUP_REDUCE(reduce_sums, vec4, group_partials, pm_sum)

const uint kPiece = 4u * IN_WORD;  // number of elements in 16 bytes
#define FOR_ROWS(r) [[unroll]] for (uint r = 0u; r < ROWS; ++r)
#define FOR_COLUMNS(c) [[unroll]] for (uint c = 0u; c < COLUMNS; ++c)

// Integer k of a piece minus the zero point. With exponent 23 the integer becomes the low mantissa bits of a float; one fma by a power of
// two then gives the exact difference. GPUs convert integers at a quarter of the fma rate or less.
float subtract_zero_point(uvec4 piece, uint k, float zeros) {
  const uint word = piece[k / IN_WORD], bit = k % IN_WORD * BITS, at = bit % 16u;
  const uint bits = (bit < 16u ? word : word >> 16) & (((1u << BITS) - 1u) << at);
  return fma(uintBitsToFloat(bits | 0x4b000000u), 1.0 / float(1u << at), -(float(8388608u >> at) + zeros));
}

#if GATED
const uint kOutColumns = COLUMNS / 2u;  // number of output columns per group
#else
const uint kOutColumns = COLUMNS;
#endif

// Loads 16 bytes of column c of the group; `at` counts 16-byte pieces.
uvec4 load_weight_piece(uint c, uint at) {
#if GATED
  if (c >= kOutColumns) return gate_w[p.gate_w_offset / kPiece + at];
#endif
  return w[p.w_offset / kPiece + at];
}

float load_zero_point(uint c, uint block) {
#if GATED && ZERO
  if (c >= kOutColumns) return extract_integer(gate_zero[(p.gate_zero_offset + block) / IN_WORD], (p.gate_zero_offset + block) % IN_WORD);
#endif
  return zero_point(block);
}

float load_scale(uint c, uint block) {
#if GATED
  if (c >= kOutColumns) return gate_scale[block];
#endif
  return scale[block];
}

float finish_column(vec4 totals, uint c, uint at) {
#if GATED
  return epilogue(totals[c], apply_gate(totals[c + kOutColumns]));
#else
  return apply_epilogue(totals[c], at);
#endif
}

void main() {
  const uint tile = kOutColumns * THREAD_GROUPS;
  const uvec3 group = grid_group((p.columns + tile - 1u) / tile, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint first_column = group.x * tile + THREAD_GROUP_INDEX * kOutColumns, first_row = group.y * ROWS;
  const uint pieces = p.k_size / kPiece;
  uint columns[COLUMNS], at_x[ROWS];
  uvec4 next_w[COLUMNS];
  vec4 sums[ROWS];
  float square_sums[ROWS];
  FOR_COLUMNS(c) {
    columns[c] = min(first_column + c % kOutColumns, p.columns - 1u);
    next_w[c] = load_weight_piece(c, columns[c] * pieces + min(THREAD_IN_GROUP, pieces - 1u));
  }
  FOR_ROWS(r) {
    at_x[r] = p.x_offset + min(first_row + r, p.rows - 1u) * p.k_size;
    sums[r] = vec4(0.0);
    square_sums[r] = 0.0;
  }
  for (uint i = THREAD_IN_GROUP; i < pieces; i += GROUP_THREADS) {
    uvec4 current_w[COLUMNS];
    float zeros[COLUMNS];
    vec4 scales = vec4(0.0), block_sums[ROWS];
    FOR_COLUMNS(c) {
      current_w[c] = next_w[c] ^ kSignMask;
      next_w[c] = load_weight_piece(c, columns[c] * pieces + min(i + GROUP_THREADS, pieces - 1u));
      const uint block = columns[c] * p.blocks + i * kPiece / p.block;
      zeros[c] = load_zero_point(c, block) + kBias;
      scales[c] = load_scale(c, block);
    }
    FOR_ROWS(r) block_sums[r] = vec4(0.0);
    [[unroll]] for (uint e = 0u; e < kPiece / 8u; ++e) {
      vec4 low[ROWS], high[ROWS];
      FOR_ROWS(r) load_x_pair(at_x[r] + i * kPiece + e * 8u, low[r], high[r]);
#if NORMED
      const vec4 low_gain = gain[i * kPiece / 4u + e * 2u], high_gain = gain[i * kPiece / 4u + e * 2u + 1u];
      FOR_ROWS(r) {
        square_sums[r] += dot(low[r], low[r]) + dot(high[r], high[r]);
        low[r] *= low_gain;
        high[r] *= high_gain;
      }
#endif
      FOR_COLUMNS(c) {
        vec4 a, b;
        [[unroll]] for (uint j = 0u; j < 4u; ++j) {
          a[j] = subtract_zero_point(current_w[c], e * 8u + j, zeros[c]);
          b[j] = subtract_zero_point(current_w[c], e * 8u + 4u + j, zeros[c]);
        }
        FOR_ROWS(r) block_sums[r][c] += dot(a, low[r]) + dot(b, high[r]);
      }
    }
    FOR_ROWS(r) sums[r] = fma(block_sums[r], scales, sums[r]);
  }
#if NORMED
  [[unroll]] for (uint first = 0u; first < ROWS; first += 4u) {
    vec4 sums4 = vec4(0.0);
    [[unroll]] for (uint r = 0u; r < min(ROWS - first, 4u); ++r) sums4[r] = square_sums[first + r];
    sums4 = reduce_sums(sums4);
    [[unroll]] for (uint r = 0u; r < min(ROWS - first, 4u); ++r)
      square_sums[first + r] = pm_divide(1.0, pm_sqrt(pm_divide(sums4[r], float(p.k_size)) + p.epsilon));
  }
#endif
  FOR_ROWS(r) {
    vec4 totals = reduce_sums(sums[r]);
#if NORMED
    totals *= square_sums[r];
#endif
    FOR_COLUMNS(c) {
      const uint row = first_row + r, column = first_column + c;
      if (c >= kOutColumns || THREAD_IN_GROUP != c || column >= p.columns || row >= p.rows) continue;
      const uint at = row * p.columns + column;
      pm_store(y, p.y_offset + at, finish_column(totals, c, at));
    }
  }
}
