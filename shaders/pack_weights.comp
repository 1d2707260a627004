// Packs the weights of a GEMM or convolution. Elements outside the source become zero; floats are multiplied by `scale`.
//
// x: any strided [groups * channels_out, channels_in, taps] (transposed convolutions: channels_in first); INTEGER: bytes, unscaled.
// y: LANES, for conv_cpu and gemv_cpu: [groups][channels_out / 16][taps][channels_in / KV][16][4].
//   FRAGMENTS, for gemm_mma and conv_halo: [channels_out / 8][channels_in / 32][taps][32][8]. SPREAD: this many taps of a kernel row
//   are columns, tap by tap: [columns / 8][channels_in / 32][rows][32][8].
//   FRAGMENTS with HALVES, for gemm_split_fp16: [columns / 8][depth / 32][2][32][8], the fp16 high parts before the low parts.
//   otherwise, for conv_tiled, conv_patch, conv_few_channels, conv_coopmat and gemv: [groups][taps][channels_in][channels_out rounded up to 8].
// An invocation writes 4 contiguous elements: from one output channel (LANES, FRAGMENTS) or from 4 output channels. LANES: RUN steps of KV
// in sequence, because integer divisions would dominate.
//
// For all devices. Selected in cpp/operators/conv_gemm/weight_packing.cpp.
#version 450
#include "include/grid.glsl"
#include "include/tensor.glsl"
#if HALVES
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
  uint quads;  // number of vec4s to pack here; LANES: number of vec4s of all packed weights
  uint taps, channels_in, channels_out;
  uint first_in, all_in;  // the source has all_in input channels; first_in .. first_in + channels_in - 1 are packed
  uint x_stride_group, x_stride_out, x_stride_in, x_stride_tap;
#if !INTEGER
  float scale;
#endif
  uint x_offset, y_offset;
} p;

#ifndef SPREAD
#define SPREAD 0u
#endif

// Branch-free load, so that several are in flight at once: out-of-range elements read a valid address and become zero.
Weight weight(uint group, uint tap, uint channel_in, uint channel_out) {
  const bool inside = channel_in < p.channels_in && channel_out < p.channels_out;
  const uint at = group * p.x_stride_group + channel_out * p.x_stride_out + channel_in * p.x_stride_in + tap * p.x_stride_tap;
  const Weight v = LOAD(p.x_offset + (inside ? at : 0u));
#if INTEGER
  return inside ? v : 0u;
#else
  return inside ? v * p.scale : 0.0;
#endif
}

void store(uint quad, Weight4 v) {
#if INTEGER
  y[(p.y_offset >> 2) + quad] = pm_pack_u8(v);
#else
  pm_store_vec4(y, (p.y_offset >> 2) + quad, v);
#endif
}

void main() {
  const uint index = grid_invocation();
#if LANES
  const uint steps = (p.channels_in + uint(KV) - 1u) / uint(KV), blocks = (p.channels_out + 15u) / 16u;
  const uint runs = (steps + uint(RUN) - 1u) / uint(RUN);
  uint rest = index;
  const uint lane = rest % 16u; rest /= 16u;
  const uint row = rest / blocks, block = rest - row * blocks;  // adjacent invocations read the same rows
  const uint plane = row / runs, first = (row - plane * runs) * uint(RUN);
  const uint group = plane / p.taps, tap = plane - group * p.taps, channel_out = block * 16u + lane;
  const uint all_steps = (p.all_in + uint(KV) - 1u) / uint(KV);
  const uint begin = (((group * blocks + block) * p.taps + tap) * all_steps + p.first_in / uint(KV)) * 16u + lane;
  if (begin >= p.quads) return;
  const uint last = min(first + uint(RUN), steps);
  for (uint step = first; step < last; ++step) {
    Weight4 v = Weight4(0);
    for (uint i = 0u; i < uint(KV); ++i) v[i] = weight(group, tap, step * uint(KV) + i, channel_out);
    store(begin + step * 16u, v);
  }
#elif FRAGMENTS
  if (index >= p.quads) return;
  const uint chunks = (p.channels_in + 31u) / 32u, all_chunks = (p.all_in + 31u) / 32u;
  const uint column = index % 8u, part = index / 8u % 8u, rest = index / 64u;  // adjacent invocations read adjacent elements
  const uint plane = rest / p.taps, tap = rest - plane * p.taps, block = plane / chunks, chunk = plane - block * chunks;
  Weight4 v;
  const uint number_out = block * 8u + column, across = SPREAD == 0u ? 0u : number_out / p.channels_out;
  const uint channel_out = across < max(SPREAD, 1u) ? number_out - across * p.channels_out : p.channels_out;  // zeros past the last column
  const uint whole_tap = tap * max(SPREAD, 1u) + across;
  for (uint i = 0u; i < 4u; ++i) v[i] = weight(0u, whole_tap, chunk * 32u + part * 4u + i, channel_out);
  const uint number = (block * all_chunks + p.first_in / 32u + chunk) * p.taps + tap, place = column * 8u + part;
#if HALVES
  vec4 high, low;
  for (uint i = 0u; i < 4u; ++i) high[i] = nearest_half(v[i]), low[i] = low_half(v[i], high[i]);
  store(number * 128u + place, high);
  store(number * 128u + 64u + place, low);
#else
  store(number * 64u + place, v);
#endif
#else
  const uint columns = (p.channels_out + 7u) / 8u * 2u;
  if (index >= p.quads) return;
  uint rest = index;
  const uint channel_out = rest % columns * 4u; rest /= columns;
  uint channel_in = rest, tap = 0u, group = 0u;
  if (rest >= p.channels_in) {  // there is more than one tap or group
    channel_in = rest % p.channels_in; rest /= p.channels_in;
    tap = rest % p.taps, group = rest / p.taps;
  }
  Weight4 v;
  for (uint i = 0u; i < 4u; ++i) v[i] = weight(group, tap, channel_in, channel_out + i);
  store(index + ((group * p.taps + tap) * (p.all_in - p.channels_in) + p.first_in) * columns, v);
#endif
}
