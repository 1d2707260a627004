// GEMV and GEMM of a few rows, memory-bound in w: y = x w.
//
// x: [batch][rows][K], any strides. w: packed as [batch][K][columns rounded up to 8], read in vec8s.
// Workgroup = 32 output columns for all ROWS rows, z = batch item. Four neighbouring invocations load 32 columns of one row of w; the other
// invocations load further rows.
//   for each UNROLL rows of w of this invocation: issue all loads; acc[row] += x w
//   reduce in shared memory in two steps: sums of 8, then the rest; bias, epilogue, store
//
// For GPUs. Selected in cpp/operators/conv_gemm/conv_gemm_plan.cpp (make_gemv_plan).
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"
#include "include/vec8.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 1024u;
layout(constant_id = 1) const uint ROWS = 1u;
layout(constant_id = 2) const uint UNROLL = 8u;
layout(constant_id = 3) const uint NO_K_TAIL = 0u;  // 1: the number of rows of w loaded at once divides K

layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) readonly buffer W { VEC8 w[]; };
layout(binding = 2) buffer Y { YFP y[]; };

const uint kColumns = 32u, kAcross = 4u;  // columns per workgroup; number of invocations that load them
const uint DEEP = INVOCATIONS / kAcross;  // number of rows of w loaded in parallel

const uint PARTIALS = INVOCATIONS / kColumns;       // number of partial sums per column after the first step
shared vec4 partial_vec4[ROWS * INVOCATIONS * 2u];  // [row][down][vec4 of columns]
shared float partials[ROWS * INVOCATIONS];          // [row][part][column]

void store_sum(uint row, uint channel, float sum) {
  if (row >= p.pixels || channel >= p.channels_out) return;
  const uint at = y_index(uvec3(0u, 0u, row)) + Y_GROUP + channel * p.y_stride_c;
  SET_Y(at, apply_epilogue(sum + channel_bias(channel) + element_bias(row, channel), at));
}

void main() {
  const uint across = gl_LocalInvocationIndex % kAcross, k_thread = gl_LocalInvocationIndex / kAcross;
  const uint num_vec8 = (p.channels_out + 7u) / 8u;  // number of vec8s per row of w
  const uint vec8_index = min(grid_group().y * (kColumns / 8u) + across, num_vec8 - 1u);
  const uint first_w = (W_GROUP >> 3) + vec8_index, first_x = p.x_offset + X_GROUP;
  vec4 sums[ROWS * 2u];
  [[unroll]] for (uint i = 0u; i < ROWS * 2u; ++i) sums[i] = vec4(0.0);
  for (uint begin = k_thread; begin < p.channels_in; begin += DEEP * UNROLL) {
    // Branch-free, so that all loads are in flight at once: past the end, the last row is repeated and counts as zero.
    VEC8 loaded_w[UNROLL];
    float factors[ROWS * UNROLL];
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const uint k_index = begin + k * DEEP, at = NO_K_TAIL != 0u ? k_index : min(k_index, p.channels_in - 1u);
      loaded_w[k] = w[first_w + at * num_vec8];
      [[unroll]] for (uint row = 0u; row < ROWS; ++row)
        factors[row * UNROLL + k] = X_AT(first_x + min(row, p.pixels - 1u) * p.x_stride_w + at * p.x_stride_c);
    }
    [[unroll]] for (uint k = 0u; k < UNROLL; ++k) {
      const bool in_k_range = NO_K_TAIL != 0u || begin + k * DEEP < p.channels_in;
      const vec4 low = in_k_range ? vec8_low(loaded_w[k]) : vec4(0.0), high = in_k_range ? vec8_high(loaded_w[k]) : vec4(0.0);
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        const float v = in_k_range ? factors[row * UNROLL + k] : 0.0;
        sums[row * 2u] = fma(vec4(v), low, sums[row * 2u]);
        sums[row * 2u + 1u] = fma(vec4(v), high, sums[row * 2u + 1u]);
      }
    }
  }
  [[unroll]] for (uint i = 0u; i < ROWS * 2u; ++i)
    partial_vec4[(i / 2u * DEEP + k_thread) * (kColumns / 4u) + across * 2u + i % 2u] = sums[i];
  barrier();
  const uint column = gl_LocalInvocationIndex % kColumns, partial = gl_LocalInvocationIndex / kColumns;
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0u; i < DEEP / PARTIALS; ++i)
      sum += partial_vec4[(row * DEEP + partial * (DEEP / PARTIALS) + i) * (kColumns / 4u) + column / 4u][column % 4u];
    partials[(row * PARTIALS + partial) * kColumns + column] = sum;
  }
  barrier();
  if (partial >= ROWS) return;
  float sum = 0.0;
  for (uint i = 0u; i < PARTIALS; ++i) sum += partials[(partial * PARTIALS + i) * kColumns + column];
  store_sum(partial, grid_group().y * kColumns + column, sum);
}
