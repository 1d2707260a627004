// Products of a few rows with a matrix in blocks for CPU drivers: see include/blocks.glsl. One subgroup of 8 computes 8 columns of ROWS rows,
// a column a lane, which reads its words AHEAD at a time, all of one block; x is read by all lanes together and handed round by shuffles
// with constant lanes.
//
// Measured on lavapipe (Mesa 22.3.6, 2 cores): 1 x 1024 x 2048 of 4 bits in blocks of 32 takes 0.8 ms of one core, by block_rows 8.3.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 3
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/blocks.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 1) const uint AHEAD = 1u;

const uint kLanes = 8u, HELD = (AHEAD * IN_WORD + kLanes - 1u) / kLanes;  // elements of x that a lane holds

void main() {
  const uvec3 group = grid_group((p.columns + kLanes - 1u) / kLanes, (p.rows + ROWS - 1u) / ROWS);
  if (is_past_grid(group, 1u)) return;
  const uint lane = gl_LocalInvocationID.x, column = group.x * kLanes + lane, first_row = group.y * ROWS;
  const uint words = p.depth / IN_WORD, read = min(column, p.columns - 1u);
  const uint first = p.w_offset / IN_WORD + read * words;
  float sums[ROWS];
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) sums[row] = 0.0;
  for (uint i = 0u; i < words; i += AHEAD) {
    // Past the depth's end the last word is read again, and x counts as zero.
    uint held[AHEAD];
    [[unroll]] for (uint j = 0u; j < AHEAD; ++j) held[j] = w[first + min(i + j, words - 1u)];
    const uint block = read * p.blocks + i * IN_WORD / p.block;
    const float least = zero_point(block), unit = scale[block];
    float values[AHEAD * IN_WORD];
    [[unroll]] for (uint k = 0u; k < AHEAD * IN_WORD; ++k) values[k] = integer_in(held[k / IN_WORD], k % IN_WORD) - least;
    [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
      float factors[HELD];
      [[unroll]] for (uint j = 0u; j < HELD; ++j) {
        const uint k = i * IN_WORD + j * kLanes + lane;
        const float factor = pm_load(x, p.x_offset + min(first_row + row, p.rows - 1u) * p.depth + min(k, p.depth - 1u));
        factors[j] = k < p.depth ? factor : 0.0;
      }
      float part = 0.0;
      [[unroll]] for (uint k = 0u; k < AHEAD * IN_WORD; ++k) part = fma(subgroupShuffle(factors[k / kLanes], k % kLanes), values[k], part);
      sums[row] = fma(part, unit, sums[row]);
    }
  }
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
    const bool inside = column < p.columns && first_row + row < p.rows;
    if (inside) pm_store(y, p.y_offset + (first_row + row) * p.columns + column, epilogue(sums[row]));
  }
}
