// GEMV and GEMM of a few rows with w stored by columns, memory-bound in w: y = x w.
//
// x: rows of contiguous vec8s. w: packed as [columns][K], K a multiple of 8.
// A subgroup computes one output column for all ROWS rows. Its invocations load neighbouring vec8s of the column.
//   for each UNROLL vec8s of this invocation: issue all loads; acc[row] += dot(x, w)
//   reduce with subgroupShuffleXor; bias, epilogue, store
//
// Requires subgroup shuffles. Selected in cpp/operators/conv_gemm/conv_gemm_plan.cpp (make_gemv_col_major_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"
#include "include/vec8.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint ROWS = 1u;
layout(constant_id = 1) const uint UNROLL = 8u;
layout(constant_id = 2) const uint NO_K_TAIL = 0u;  // 1: the number of vec8s loaded at once divides the vec8s of a column

#if PM_GRAIN == 2 && !X_FLOAT && W_FLOAT
layout(binding = 0) readonly buffer X { uvec4 x[]; };
VEC8 load_x_vec8(uint at) {
  const uvec4 v = x[at / 8u];
  return VEC8(vec4(pm_unpack_halves(v.x), pm_unpack_halves(v.y)), vec4(pm_unpack_halves(v.z), pm_unpack_halves(v.w)));
}
#elif PM_GRAIN == 2 && !X_FLOAT
layout(binding = 0) readonly buffer X { VEC8 x[]; };
VEC8 load_x_vec8(uint at) { return x[at / 8u]; }
#else
layout(binding = 0) readonly buffer X { vec4 x[]; };  // not vec8, because x_offset may be an odd multiple of 4
VEC8 load_x_vec8(uint at) { return VEC8(x[at / 4u], x[at / 4u + 1u]); }
#endif
layout(binding = 1) readonly buffer W { VEC8 w[]; };
layout(binding = 2) buffer Y { YFP y[]; };

void main() {
  const uint lane = gl_SubgroupInvocationID, channel = grid_group().y * (gl_WorkGroupSize.x / SUBGROUP) + gl_SubgroupID;
  const uint num_vec8 = p.channels_in / 8u, first_w = (p.w_offset >> 3) + min(channel, p.channels_out - 1u) * num_vec8;
  float sums[ROWS];
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) sums[row] = 0.0;
  for (uint begin = lane; begin < num_vec8; begin += SUBGROUP * UNROLL) {
    // Branch-free, so that all loads are in flight at once: past the end, the last vec8 is repeated and counts as zero.
    VEC8 loaded_w[UNROLL], loaded_x[ROWS * UNROLL];
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const uint vec8_index = begin + k * SUBGROUP, at = NO_K_TAIL != 0u ? vec8_index : min(vec8_index, num_vec8 - 1u);
      loaded_w[k] = w[first_w + at];
      [[unroll]] for (uint row = 0u; row < ROWS; ++row)
        loaded_x[row * UNROLL + k] = load_x_vec8(p.x_offset + min(row, p.pixels - 1u) * p.x_stride_w + at * 8u);
    }
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const bool in_k_range = NO_K_TAIL != 0u || begin + k * SUBGROUP < num_vec8;
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        const VEC8 f = loaded_x[row * UNROLL + k];
        const float product = dot(vec8_low(loaded_w[k]), vec8_low(f)) + dot(vec8_high(loaded_w[k]), vec8_high(f));
        sums[row] += in_k_range ? product : 0.0;
      }
    }
  }
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
    float sum = sums[row];
    [[unroll]] for (uint mask = 1u; mask < SUBGROUP; mask <<= 1) sum += subgroupShuffleXor(sum, mask);
    if (lane != 0u || row >= p.pixels || channel >= p.channels_out) continue;
    const uint at = y_index(uvec3(0u, 0u, row)) + channel * p.y_stride_c;
    SET_Y(at, apply_epilogue(sum + channel_bias(channel) + element_bias(row, channel), at));
  }
}
