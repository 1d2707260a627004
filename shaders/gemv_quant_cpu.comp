// GEMV and GEMM of a few rows with block-quantised weights, for CPU drivers. See include/quant_weights.glsl for the formula and the
// buffers.
//
// Workgroup = one subgroup of 8 computes 16 columns of ROWS rows, two columns per lane. A lane reads UNROLL words of its columns at a time,
// all from one block. All lanes read x together and broadcast it by subgroupShuffle with constant lanes.
//   for each UNROLL words of K:
//     load x (one part per lane) and w; part[m][n] = sum of x (w - zero); acc[m][n] += scale * part[m][n]
//
// Measured on lavapipe (Mesa 22.3.6, 2 cores): 1 x 1024 x 2048 with 4 bits in blocks of 32 takes 0.8 ms on one core; gemv_quant_generic
// takes 8.3 ms. Selected in cpp/operators/conv_gemm/quant_gemm.cpp (make_cpu_tiling) for devices that prefer CPU variants.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/quant_weights.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 1) const uint UNROLL = 1u;

const uint kLanes = 8u, kColumns = 2u;  // invocations per workgroup; columns per lane
const uint X_PER_LANE = (UNROLL * IN_WORD + kLanes - 1u) / kLanes;  // number of elements of x per lane

void main() {
  const uint tile = kLanes * kColumns;
  const uvec3 group = grid_group((p.columns + tile - 1u) / tile, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint lane = gl_LocalInvocationID.x, first_column = group.x * tile + lane, first_row = group.y * ROWS;
  const uint words = p.k_size / IN_WORD;
  uint columns[kColumns];
  [[unroll]] for (uint c = 0u; c < kColumns; ++c) columns[c] = min(first_column + c * kLanes, p.columns - 1u);
  float sums[ROWS * kColumns];
  [[unroll]] for (uint i = 0u; i < ROWS * kColumns; ++i) sums[i] = 0.0;
  for (uint i = 0u; i < words; i += UNROLL) {
    // Past the end of K, the last word is repeated and x is zero.
    float factors[ROWS * X_PER_LANE];
    [[unroll]] for (uint j = 0u; j < X_PER_LANE; ++j) {
      const uint k = i * IN_WORD + j * kLanes + lane, at = p.x_offset + min(k, p.k_size - 1u);
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        const float factor = pm_load(x, at + min(first_row + row, p.rows - 1u) * p.k_size);
        factors[row * X_PER_LANE + j] = k < p.k_size ? factor : 0.0;
      }
    }
    uint loaded_w[UNROLL * kColumns];
    float zeros[kColumns], scales[kColumns], block_sums[ROWS * kColumns];
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
      [[unroll]] for (uint j = 0u; j < UNROLL; ++j)
        loaded_w[c * UNROLL + j] = w[p.w_offset / IN_WORD + columns[c] * words + min(i + j, words - 1u)];
      const uint block = columns[c] * p.blocks + i * IN_WORD / p.block;
      zeros[c] = zero_point(block);
      scales[c] = scale[block];
    }
    [[unroll]] for (uint j = 0u; j < ROWS * kColumns; ++j) block_sums[j] = 0.0;
    [[unroll]] for (uint k = 0u; k < UNROLL * IN_WORD; ++k) {
      float values[kColumns];
      [[unroll]] for (uint c = 0u; c < kColumns; ++c) values[c] = extract_integer(loaded_w[c * UNROLL + k / IN_WORD], k % IN_WORD) - zeros[c];
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        const float factor = subgroupShuffle(factors[row * X_PER_LANE + k / kLanes], k % kLanes);
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) block_sums[row * kColumns + c] = fma(factor, values[c], block_sums[row * kColumns + c]);
      }
    }
    [[unroll]] for (uint j = 0u; j < ROWS * kColumns; ++j) sums[j] = fma(block_sums[j], scales[j % kColumns], sums[j]);
  }
  [[unroll]] for (uint j = 0u; j < ROWS * kColumns; ++j) {
    const uint row = first_row + j / kColumns, column = first_column + j % kColumns * kLanes;
    if (column < p.columns && row < p.rows) pm_store(y, p.y_offset + row * p.columns + column, apply_epilogue(sums[j], row * p.columns + column));
  }
}
