// GEMM and convolution for CPU drivers, in registers. See include/conv_gemm.glsl for the geometry and conv_gemm_cpu.glsl for the
// weights.
//
// Workgroup = one subgroup of 8 computes 16 output channels x 16 pixels, two pixels per lane. Weights are loaded once per subgroup and
// broadcast by subgroupShuffle with constant lanes.
//   for each tap, for each KV input channels:
//     load x of 2 pixels per lane; load 16 x KV weights per subgroup
//     for each of 16 channels: broadcast its weights; acc[channel][pixel] += w x
// Each loop that is not unrolled copies all 32 accumulators at its end. ROW_TAPS > 0 therefore unrolls the taps of a row, for up to 4 input
// channels.
//
// Measured on lavapipe (Mesa 22.3.6, LLVM 15, 2 cores), in 10^9 lane operations per second: multiply-add 41, load from a storage buffer 1.7
// (as vec4 2.9), from shared memory 1.8, subgroupShuffle with a constant 27, subgroupBroadcast 3.4. Multiply-adds of a 1x1 convolution of
// 64 channels, by channels x pixels per lane: 16x2 13.7, 16x1 8.9, 16x4 9.1, 32x1 10.0, 8x4 10.8, 32x2 3.4.
// Selected in conv_gemm_plan.cpp (make_conv_cpu_plan) for devices that prefer CPU variants.
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

const uint kPixels = 2u;  // number of pixels per invocation

void main() {
  const uint lane = gl_LocalInvocationID.x;
  const uint block = grid_group().y;
  uvec3 positions[kPixels];
  uint images[kPixels];
  const uint group_x = p.x_offset + X_GROUP;
  const uint first = grid_group().x * kLanes * kPixels + lane;
  for (uint i = 0u; i < kPixels; ++i) {
    positions[i] = pixel_position(min(first + i * kLanes, p.pixels - 1u));
    images[i] = group_x + positions[i].x * p.x_stride_n;
  }
  Acc sums[kChannels * kPixels];
  for (uint i = 0u; i < kChannels * kPixels; ++i) sums[i] = Acc(0);
#if X_ZERO
  int zeros[kPixels];
  for (uint i = 0u; i < kPixels; ++i) zeros[i] = x_zero_point(positions[i]);
#endif
#if W_ZERO
  int x_row_sums[kPixels];  // row sums of x, for the zero point of w
  for (uint i = 0u; i < kPixels; ++i) x_row_sums[i] = 0;
#endif

  const uint steps = (p.channels_in + uint(KV) - 1u) / uint(KV);
  const uint w_block = (W_GROUP >> 2) + block * KERNEL_TAPS * steps * kChannels + lane;
  for (uint th = 0u; th < TAPS_H; ++th) {
#if ROW_TAPS > 0
    [[unroll]] for (uint tw = 0u; tw < uint(ROW_TAPS); ++tw) {
#else
    for (uint tw = 0u; tw < TAPS_W; ++tw) {
#endif
      uint rows[kPixels];
      bool inside[kPixels];
      for (uint i = 0u; i < kPixels; ++i) {
        inside[i] = find_input_offset(positions[i], th, tw, rows[i]);
        rows[i] += images[i];
      }
      uint w_step = w_block + tap_index(th, tw) * steps * kChannels;
#if ROW_TAPS > 0
      const uint step = 0u;
      {
#else
      for (uint step = 0u; step < steps; ++step) {
#endif
        Acc4 v[kPixels];
        for (uint i = 0u; i < kPixels; ++i) {
          v[i] = load_x(rows[i], step * uint(KV));
#if X_ZERO
          v[i] -= zeros[i];
#endif
          v[i] = inside[i] ? v[i] : Acc4(0);
#if W_ZERO
          const uvec4 channels = step * uint(KV) + uvec4(0u, 1u, 2u, 3u);
          [[unroll]] for (uint k = 0u; k < uint(KV); ++k) x_row_sums[i] += channels[k] < p.channels_in ? v[i][k] : 0;
#endif
        }
        for (uint j = 0u; j < kChannels / kLanes; ++j) {
          const Acc4 weights = LOAD_W4(w_step + j * kLanes);
          for (uint l = 0u; l < kLanes; ++l) {
            const Acc wx = subgroupShuffle(weights.x, l);
#if KV > 1
            const Acc wy = subgroupShuffle(weights.y, l);
#endif
#if KV > 2
            const Acc wz = subgroupShuffle(weights.z, l);
#endif
#if KV > 3
            const Acc ww = subgroupShuffle(weights.w, l);
#endif
            for (uint i = 0u; i < kPixels; ++i) {
              Acc sum = sums[(j * kLanes + l) * kPixels + i];
              sum = fused_multiply_add(wx, v[i].x, sum);
#if KV > 1
              sum = fused_multiply_add(wy, v[i].y, sum);
#endif
#if KV > 2
              sum = fused_multiply_add(wz, v[i].z, sum);
#endif
#if KV > 3
              sum = fused_multiply_add(ww, v[i].w, sum);
#endif
              sums[(j * kLanes + l) * kPixels + i] = sum;
            }
          }
        }
        w_step += kChannels;
      }
    }
  }

  for (uint j = 0u; j < kChannels; ++j) {
    const uint channel = block * kChannels + j;
#if W_ZERO
    const int zero = w_zero_point(channel);
    for (uint i = 0u; i < kPixels; ++i) sums[j * kPixels + i] -= zero * x_row_sums[i];
#endif
    const Acc bias = channel_bias(channel);
    for (uint i = 0u; i < kPixels; ++i) sums[j * kPixels + i] += bias + element_bias(first + i * kLanes, channel);
  }
  for (uint i = 0u; i < kPixels; ++i) {
    if (first + i * kLanes >= p.pixels) continue;
    const uint at = y_index(positions[i]) + Y_GROUP;
#if Y_VEC4
    for (uint j = 0u; j < kChannels; j += 4u) {
      const Acc4 four = Acc4(sums[j * kPixels + i], sums[(j + 1u) * kPixels + i], sums[(j + 2u) * kPixels + i], sums[(j + 3u) * kPixels + i]);
      const uint index = at + y_channel(block * kChannels + j);
      if (block * kChannels + j < p.channels_out) STORE_Y4(index, apply_epilogue(four, index));
    }
#else
    for (uint j = 0u; j < kChannels; ++j) {
      const uint index = at + y_channel(block * kChannels + j);
      if (block * kChannels + j < p.channels_out) STORE_Y(index, apply_epilogue(sums[j * kPixels + i], index));
    }
#endif
  }
}
