// GEMV, and convolution with few output pixels, for CPU drivers. Bound by reading the weights.
//
// See include/conv_gemm.glsl for the geometry and include/conv_gemm_cpu.glsl for the packed weights. W_STRIDED: w is an unpacked
// matrix, loaded element by element; W_VEC4: its columns are contiguous, loaded as vec4.
// Workgroup = one subgroup of 8 computes 16 output channels of all ROWS pixels, two channels per lane. Each lane loads the weights of its
// channels. All lanes load x together, 8 steps at a time, and broadcast it by subgroupShuffle with constant lanes.
//   for each tap, for each 8 steps of KV input channels:
//     load x, one step per lane; for each step: load w, broadcast x, acc += w x in the order of K
// All CPU variants sum in the order of K, so a GEMM has the same bits in each.
//
// Measured on lavapipe (Mesa 22.3.6, 2 cores): 1 x 1024 x 2048 in float32 takes 0.57 ms (14 GB/s); conv_cpu takes 3.1 ms. Reading an
// unpacked matrix (7 GB/s) takes a sixth of the time of packing it first.
// Selected in cpp/operators/conv_gemm/conv_gemm_plan.cpp (make_gemv_cpu_plan) for devices that prefer CPU variants.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm_cpu.glsl"

layout(local_size_x = 8) in;
layout(constant_id = 0) const uint ROWS = 1u;

const uint kBlocks = kChannels / kLanes;  // number of channels per lane

// Loads w of four input channels of `step`, for the output channel whose weights start at `first`. `all`: all four channels exist.
Acc4 load_w(uint first, uint step, bool all) {
#if !W_STRIDED
  return LOAD_W4(first + step * kChannels);
#elif W_VEC4
  return LOAD_W4((first >> 2) + step);
#else
  const uvec4 channels = step * 4u + uvec4(0u, 1u, 2u, 3u);
  const uvec4 at = first + min(channels, uvec4(all ? ~0u : p.channels_in - 1u)) * p.w_stride_in;
  const vec4 v = vec4(W_AT(at.x), W_AT(at.y), W_AT(at.z), W_AT(at.w));
  return all ? v : mix(vec4(0.0), v, lessThan(channels, uvec4(p.channels_in)));
#endif
}

// Loads x of four input channels of `step`; zero past the last channel, so that weights there have no effect.
Acc4 load_x_step(uint row, uint step, bool inside, int zero) {
  const uvec4 channels = step * uint(KV) + uvec4(0u, 1u, 2u, 3u);
  const uint end = inside ? p.channels_in : 0u;
  Acc4 v = load_x(row, step * uint(KV));
#if X_ZERO
  v -= zero;
#endif
  return mix(Acc4(0), v, lessThan(channels, uvec4(end)));
}

Acc4 broadcast(Acc4 v, uint lane) {
  return Acc4(subgroupShuffle(v.x, lane), subgroupShuffle(v.y, lane), subgroupShuffle(v.z, lane), subgroupShuffle(v.w, lane));
}

// Accumulates in the order of K, as all CPU variants do, so that they give identical results.
Acc dot_in_order(Acc4 a, Acc4 b, Acc sum) {
  return fused_multiply_add(a.w, b.w, fused_multiply_add(a.z, b.z, fused_multiply_add(a.y, b.y, fused_multiply_add(a.x, b.x, sum))));
}

void main() {
  const uint lane = gl_LocalInvocationID.x, block = grid_group().y;
  uvec3 positions[ROWS];
  uint images[ROWS];
  int zeros[ROWS];
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
    positions[row] = pixel_position(row);
    images[row] = p.x_offset + X_GROUP + positions[row].x * p.x_stride_n;
    zeros[row] = 0;
#if X_ZERO
    zeros[row] = x_zero_point(positions[row]);
#endif
  }
  Acc sums[ROWS * kBlocks];
  [[unroll]] for (uint i = 0u; i < ROWS * kBlocks; ++i) sums[i] = Acc(0);
#if W_ZERO
  int x_row_sums[ROWS];  // row sums of x, for the zero point of w
  [[unroll]] for (uint row = 0u; row < ROWS; ++row) x_row_sums[row] = 0;
#endif

  const uint steps = (p.channels_in + uint(KV) - 1u) / uint(KV), whole = p.channels_in / (uint(KV) * kLanes) * kLanes;
  uint first_w[kBlocks];
#if W_STRIDED
  [[unroll]] for (uint j = 0u; j < kBlocks; ++j)
    first_w[j] = W_GROUP + min(block * kChannels + j * kLanes + lane, p.channels_out - 1u) * p.w_stride_out;
#endif
  for (uint th = 0u; th < TAPS_H; ++th) {
    for (uint tw = 0u; tw < TAPS_W; ++tw) {
      uint rows[ROWS];
      bool inside[ROWS];
      [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
        inside[row] = find_input_offset(positions[row], th, tw, rows[row]);
        rows[row] += images[row];
      }
#if !W_STRIDED
      [[unroll]] for (uint j = 0u; j < kBlocks; ++j)
        first_w[j] = (W_GROUP >> 2) + (block * KERNEL_TAPS + tap_index(th, tw)) * steps * kChannels + j * kLanes + lane;
#endif
      for (uint step = 0u; step < whole; step += kLanes) {
        Acc4 own_x[ROWS];  // this lane's step of x
        [[unroll]] for (uint row = 0u; row < ROWS; ++row) own_x[row] = load_x_step(rows[row], step + lane, inside[row], zeros[row]);
        [[unroll]] for (uint l = 0u; l < kLanes; ++l) {
          Acc4 weights[kBlocks];
          [[unroll]] for (uint j = 0u; j < kBlocks; ++j) weights[j] = load_w(first_w[j], step + l, true);
          [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
            const Acc4 v = broadcast(own_x[row], l);
#if W_ZERO
            x_row_sums[row] += v.x + v.y + v.z + v.w;
#endif
            [[unroll]] for (uint j = 0u; j < kBlocks; ++j) sums[row * kBlocks + j] = dot_in_order(weights[j], v, sums[row * kBlocks + j]);
          }
        }
      }
      for (uint step = whole; step < steps; ++step) {
        Acc4 weights[kBlocks];
        [[unroll]] for (uint j = 0u; j < kBlocks; ++j) weights[j] = load_w(first_w[j], step, false);
        [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
          const Acc4 v = load_x_step(rows[row], step, inside[row], zeros[row]);
#if W_ZERO
          x_row_sums[row] += v.x + v.y + v.z + v.w;
#endif
          [[unroll]] for (uint j = 0u; j < kBlocks; ++j) sums[row * kBlocks + j] = dot_in_order(weights[j], v, sums[row * kBlocks + j]);
        }
      }
    }
  }

  [[unroll]] for (uint j = 0u; j < kBlocks; ++j) {
    const uint channel = block * kChannels + j * kLanes + lane;
    const Acc bias = channel_bias(channel);
#if W_ZERO
    const int zero = w_zero_point(channel);
#endif
    [[unroll]] for (uint row = 0u; row < ROWS; ++row) {
      Acc sum = sums[row * kBlocks + j];
#if W_ZERO
      sum -= zero * x_row_sums[row];
#endif
      sum += bias + element_bias(row, channel);
      const uint at = y_index(positions[row]) + Y_GROUP + y_channel(channel);
#if Y_VEC4
      const uint first_lane = lane & ~3u;  // the first of four lanes stores
      const Acc4 neighbours = Acc4(subgroupShuffle(sum, first_lane), subgroupShuffle(sum, first_lane + 1u), subgroupShuffle(sum, first_lane + 2u),
                                         subgroupShuffle(sum, first_lane + 3u));
      if (lane == first_lane && channel < p.channels_out) STORE_Y4(at, apply_epilogue(neighbours, at));
#else
      if (channel < p.channels_out) STORE_Y(at, apply_epilogue(sum, at));
#endif
    }
  }
}
