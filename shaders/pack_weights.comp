// Packs the weights of a GEMM or convolution. Elements outside the source become zero; floats are multiplied by `scale`.
//
// x: any strided [groups * channels_out, channels_in, taps] (transposed convolutions: channels_in first); INTEGER: bytes, unscaled.
// y: CPU_LAYOUT, for conv_cpu and gemv_cpu: [groups][channels_out / 16][taps][channels_in / KV][16][4].
//   FRAGMENTS, for gemm_mma and conv_halo: [channels_out / 8][channels_in / 32][taps][32][8]. FOLD_TAPS: this many taps of a kernel row
//   are columns, tap by tap: [columns / 8][channels_in / 32][rows][32][8].
//   FRAGMENTS with SPLIT_FP16, for gemm_split_fp16: [columns / 8][K / 32][2][32][8], the fp16 hi parts before the lo parts.
//   otherwise, for conv_tiled, conv_patch, conv_few_channels, conv_coopmat and gemv: [groups][taps][channels_in][channels_out rounded up to
//   8].
// An invocation writes 4 contiguous elements: from one output channel (CPU_LAYOUT, FRAGMENTS) or from 4 output channels. CPU_LAYOUT:
// STEPS_PER_THREAD steps of KV in sequence, because integer divisions would dominate.
//
// For all devices. Selected in cpp/operators/conv_gemm/weight_packing.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#if SPLIT_FP16
#include "include/split_fp16.glsl"
#endif
layout(local_size_x = LOCAL_SIZE) in;
#if INTEGER
layout(binding = 0) readonly buffer X { uint x[]; };
#define LOAD(i) pm_load_u8(x, i)
#elif SOURCE_FLOAT
layout(binding = 0) readonly buffer X { float x[]; };
#define LOAD(i) x[i]
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
#define LOAD(i) pm_load(x, i)
#endif
#if INTEGER
#define Weight uint
#define Weight4 uvec4
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
#define Weight float
#define Weight4 vec4
layout(binding = 1) writeonly buffer Y { sfpvec4 y[]; };
#endif
layout(push_constant) uniform parameter {
  uint num_vec4;  // number of vec4s to pack here; CPU_LAYOUT: number of vec4s of all packed weights
  uint taps, channels_in, channels_out;
  uint first_in, all_in;  // the source has all_in input channels; first_in .. first_in + channels_in - 1 are packed
  uint x_stride_group, x_stride_out, x_stride_in, x_stride_tap;
#if !INTEGER
  float scale;
#endif
  uint x_offset, y_offset;
} p;

#ifndef FOLD_TAPS
#define FOLD_TAPS 0u
#endif

// Branch-free load, so that several are in flight at once: out-of-range elements read a valid address and become zero.
Weight load_weight(uint group, uint tap, uint channel_in, uint channel_out) {
  const bool inside = channel_in < p.channels_in && channel_out < p.channels_out;
  const uint at = group * p.x_stride_group + channel_out * p.x_stride_out + channel_in * p.x_stride_in + tap * p.x_stride_tap;
  const Weight v = LOAD(p.x_offset + (inside ? at : 0u));
#if INTEGER
  return inside ? v : 0u;
#else
  return inside ? v * p.scale : 0.0;
#endif
}

void store_weights(uint vec4_index, Weight4 v) {
#if INTEGER
  y[(p.y_offset >> 2) + vec4_index] = pm_pack_u8(v);
#else
  pm_store_vec4(y, (p.y_offset >> 2) + vec4_index, v);
#endif
}

void main() {
  const uint index = grid_invocation();
#if CPU_LAYOUT
  const uint steps = (p.channels_in + uint(KV) - 1u) / uint(KV), blocks = (p.channels_out + 15u) / 16u;
  const uint runs = (steps + uint(STEPS_PER_THREAD) - 1u) / uint(STEPS_PER_THREAD);
  uint rest = index;
  const uint lane = rest % 16u; rest /= 16u;
  const uint row = rest / blocks, block = rest - row * blocks;  // adjacent invocations read the same rows
  const uint plane = row / runs, first = (row - plane * runs) * uint(STEPS_PER_THREAD);
  const uint group = plane / p.taps, tap = plane - group * p.taps, channel_out = block * 16u + lane;
  const uint all_steps = (p.all_in + uint(KV) - 1u) / uint(KV);
  const uint begin = (((group * blocks + block) * p.taps + tap) * all_steps + p.first_in / uint(KV)) * 16u + lane;
  if (begin >= p.num_vec4) return;
  const uint last = min(first + uint(STEPS_PER_THREAD), steps);
  for (uint step = first; step < last; ++step) {
    Weight4 v = Weight4(0);
    for (uint i = 0u; i < uint(KV); ++i) v[i] = load_weight(group, tap, step * uint(KV) + i, channel_out);
    store_weights(begin + step * 16u, v);
  }
#elif FRAGMENTS
  if (index >= p.num_vec4) return;
  const uint chunks = (p.channels_in + 31u) / 32u, all_chunks = (p.all_in + 31u) / 32u;
  const uint column = index % 8u, vec4_in_line = index / 8u % 8u, rest = index / 64u;  // adjacent invocations read adjacent elements
  const uint plane = rest / p.taps, tap = rest - plane * p.taps, block = plane / chunks, chunk = plane - block * chunks;
  Weight4 v;
  const uint number_out = block * 8u + column, folded_tap = FOLD_TAPS == 0u ? 0u : number_out / p.channels_out;
  // zeros past the last column
  const uint channel_out = folded_tap < max(FOLD_TAPS, 1u) ? number_out - folded_tap * p.channels_out : p.channels_out;
  const uint whole_tap = tap * max(FOLD_TAPS, 1u) + folded_tap;
  for (uint i = 0u; i < 4u; ++i) v[i] = load_weight(0u, whole_tap, chunk * 32u + vec4_in_line * 4u + i, channel_out);
  const uint number = (block * all_chunks + p.first_in / 32u + chunk) * p.taps + tap, offset = column * 8u + vec4_in_line;
#if SPLIT_FP16
  vec4 high, low;
  for (uint i = 0u; i < 4u; ++i) high[i] = round_to_fp16(v[i]), low[i] = fp16_remainder(v[i], high[i]);
  store_weights(number * 128u + offset, high);
  store_weights(number * 128u + 64u + offset, low);
#else
  store_weights(number * 64u + offset, v);
#endif
#else
  const uint columns = (p.channels_out + 7u) / 8u * 2u;
  if (index >= p.num_vec4) return;
  uint rest = index;
  const uint channel_out = rest % columns * 4u; rest /= columns;
  uint channel_in = rest, tap = 0u, group = 0u;
  if (rest >= p.channels_in) {  // there is more than one tap or group
    channel_in = rest % p.channels_in; rest /= p.channels_in;
    tap = rest % p.taps, group = rest / p.taps;
  }
  Weight4 v;
  for (uint i = 0u; i < 4u; ++i) v[i] = load_weight(group, tap, channel_in, channel_out + i);
  store_weights(index + ((group * p.taps + tap) * (p.all_in - p.channels_in) + p.first_in) * columns, v);
#endif
}
