// Convolution of few channels with many taps, without cooperative matrices. The input patch with its halo is in shared memory.
//
// See include/conv_gemm.glsl for the geometry. w: packed as [groups][kernel_taps][channels_in][channels_out rounded up to 8].
// Workgroup = TILE_H x TILE_W pixels of an image x TILE_C output channels, z = group. An invocation accumulates PIXELS neighbouring pixels
// of a row x 4 channels. SPLIT parts of the workgroup process CHUNK input channels each.
//   for each SPLIT * CHUNK input channels:
//     load the patch to shared memory, all loads first; barrier
//     for each channel of this part, for each th: load a patch row into registers; for each tw: acc += x w
//   reduce over SPLIT in shared memory; bias; epilogue; store
// POOLS: fuses MaxPool over POOL_H x POOL_W. Finished results, rounded as if stored, go through shared memory; tiles contain whole windows.
//
// For GPUs. Selected in conv_gemm_plan.cpp (patch_plan); patch_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // an invocation for each PIXELS x 4 channels, times SPLIT
layout(constant_id = 1) const uint TILE_H = 8u;
layout(constant_id = 2) const uint TILE_W = 16u;
layout(constant_id = 3) const uint TILE_C = 16u;
layout(constant_id = 4) const uint PIXELS = 4u;  // a multiple of 4 that divides TILE_W
layout(constant_id = 5) const uint SPLIT = 1u;
layout(constant_id = 6) const uint CHUNK = 1u;  // X_VEC4: SPLIT * CHUNK is a multiple of 4
layout(constant_id = 7) const uint KERNEL_H = 3u;
layout(constant_id = 8) const uint KERNEL_W = 3u;
layout(constant_id = 9) const uint STEP_H = 1u;
layout(constant_id = 10) const uint STEP_W = 1u;
layout(constant_id = 11) const uint DILATION_H = 1u;
layout(constant_id = 12) const uint DILATION_W = 1u;
layout(constant_id = 13) const uint POOL_H = 1u;  // divides TILE_H and out_h
layout(constant_id = 14) const uint POOL_W = 1u;  // divides TILE_W and out_w

#include "include/conv_gemm_buffers.glsl"

#ifndef POOLS
#define POOLS 0
#endif

const uint GROUPS_W = TILE_W / PIXELS, GROUPS = TILE_H * GROUPS_W;  // GROUPS: number of invocations that share channels
const uint PART = GROUPS * (TILE_C / 4u);
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint SPAN = (PIXELS - 1u) * STEP_W + (KERNEL_W - 1u) * DILATION_W + 1u;  // number of elements of a patch row that an invocation reads
const uint FOURS = (SPAN + 3u) / 4u;
const uint PITCH = (GROUPS_W - 1u) * PIXELS * STEP_W / 4u + FOURS;  // vec4s per patch row
const uint AREA = PATCH_H * PITCH * 4u;
const uint CHANNELS = SPLIT * CHUNK;  // input channels in shared memory
const uint UNIT = X_VEC4 == 1 ? 4u : 1u;  // number of channels per load
const uint ITEMS = CHANNELS / UNIT * AREA, LOADS = (ITEMS + INVOCATIONS - 1u) / INVOCATIONS;
const uint WORDS_IN = CHANNELS * AREA / 4u, WORDS_OUT = SPLIT > 1u || POOLS == 1 ? INVOCATIONS * PIXELS : 0u;
shared vec4 tile[WORDS_IN > WORDS_OUT ? WORDS_IN : WORDS_OUT];  // [channel][row][vec4], or partial sums

// Loads the patches of the channels from `begin` on to shared memory; zero outside the input and past its channels. All loads are issued
// before the first store.
void fetch(uint begin, uint first_x, ivec2 corner) {
#if X_VEC4
  vec4 found[LOADS];
#else
  float found[LOADS];
#endif
  [[unroll]] for (uint i = 0u; i < LOADS; ++i) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
#if X_VEC4
    const uint channel = item % (CHANNELS / UNIT) * UNIT, at = item / (CHANNELS / UNIT);  // adjacent invocations read adjacent channels
#else
    const uint channel = item / AREA, at = item % AREA;
#endif
    const ivec2 place = corner + ivec2(int(at / (PITCH * 4u)), int(at % (PITCH * 4u)));
    const bool inside = item < ITEMS && begin + channel < p.channels_in && uint(place.x) < uint(p.in_h) && uint(place.y) < uint(p.in_w);
    const uint from = first_x + uint(place.x) * p.x_stride_h + uint(place.y) * p.x_stride_w + x_channel(begin + channel);
#if X_VEC4
    const vec4 four = LOAD_X4(inside ? from : p.x_offset);
    found[i] = inside ? four : vec4(0.0);
#else
    const float one = LOAD_X(inside ? from : p.x_offset);
    found[i] = inside ? one : 0.0;
#endif
  }
  [[unroll]] for (uint i = 0u; i < LOADS; ++i) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    if (item >= ITEMS) break;
#if X_VEC4
    const uint channel = item % (CHANNELS / UNIT) * UNIT, at = item / (CHANNELS / UNIT);
    [[unroll]] for (uint k = 0u; k < 4u; ++k) tile[(channel + k) * (AREA / 4u) + at / 4u][at % 4u] = found[i][k];
#else
    tile[item / 4u][item % 4u] = found[i];
#endif
  }
}

// Returns the sum of four channels of a pixel, with bias. With SPLIT, only this invocation reads the partial sums of this pixel.
vec4 whole_sum(vec4 own, uint pixel, uint id, uint channel) {
  vec4 sum = vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
  if (SPLIT == 1u) return sum + own;
  for (uint k = 0u; k < SPLIT; ++k) sum += tile[(k * PIXELS + pixel) * PART + id];
  return sum;
}

#if POOLS
// Rounds as storing to y would.
vec4 as_stored(vec4 v) {
#if Y_FLOAT
  return v;
#else
  return pm_stored_vec4(v);
#endif
}

// MaxPool over the windows of the tile. Channels 4q .. 4q + 3 of pixel (row, column) are in tile[column % PIXELS * PART + q * GROUPS + row
// * GROUPS_W + column / PIXELS].
void store_largest(uint image, uint first_row, uint first_column) {
  const uint across = TILE_W / POOL_W, down = TILE_H / POOL_H, count = across * down * (TILE_C / 4u);
  for (uint item = gl_LocalInvocationIndex; item < count; item += INVOCATIONS) {
    const uint q = item / (across * down), row = item / across % down, column = item % across;
    const uint channel = grid_group().y * TILE_C + q * 4u;
    if (channel >= p.channels_out || first_row + row >= p.out_h / POOL_H || first_column + column >= p.out_w / POOL_W) continue;
    vec4 largest = vec4(uintBitsToFloat(0xff800000u));
    for (uint i = 0u; i < POOL_H; ++i) {
      for (uint j = 0u; j < POOL_W; ++j) {
        const uint at = column * POOL_W + j;
        const vec4 v = tile[at % PIXELS * PART + q * GROUPS + (row * POOL_H + i) * GROUPS_W + at / PIXELS];
        [[unroll]] for (uint k = 0u; k < 4u; ++k) largest[k] = pm_max(largest[k], v[k]);
      }
    }
    const uint place = y_index(uvec3(image, first_row + row, first_column + column)) + Y_GROUP;
    const vec4 made = vec4(pool_epilogue(largest.x), pool_epilogue(largest.y), pool_epilogue(largest.z), pool_epilogue(largest.w));
#if Y_VEC4
    STORE_Y4(place + y_channel(channel), made);
#else
    for (uint k = 0u; k < 4u; ++k) {
      if (channel + k < p.channels_out) STORE_Y(place + y_channel(channel + k), made[k]);
    }
#endif
  }
}
#else
void store(uvec3 pixel, uint channel, vec4 sum) {
  const uint at = y_index(pixel) + Y_GROUP;
#if Y_VEC4
  const uint place = at + y_channel(channel);
  STORE_Y4(place, finished(sum, place));
#else
  for (uint k = 0u; k < 4u; ++k) {
    const uint place = at + y_channel(channel + k);
    if (channel + k < p.channels_out) STORE_Y(place, finished(sum[k], place));
  }
#endif
}
#endif

void main() {
  const uint part = gl_LocalInvocationIndex / PART, id = gl_LocalInvocationIndex % PART;
  const uint group = id % GROUPS, row = group / GROUPS_W, column = group % GROUPS_W * PIXELS;
  const uint tiles_w = (p.out_w + TILE_W - 1u) / TILE_W, tiles_h = (p.out_h + TILE_H - 1u) / TILE_H;
  const uint image = grid_group().x / (tiles_w * tiles_h), number = grid_group().x - image * (tiles_w * tiles_h);
  const uint first_row = number / tiles_w * TILE_H, first_column = number % tiles_w * TILE_W;
  const uint channel = grid_group().y * TILE_C + id / GROUPS * 4u;
  const ivec2 corner = ivec2(first_row * STEP_H, first_column * STEP_W) + ivec2(p.base_h, p.base_w);
  const uint first_x = p.x_offset + X_GROUP + image * p.x_stride_n;
  const uint fours = (p.channels_out + 7u) / 8u * 2u;
  const uint first_w = (W_GROUP >> 2) + min(channel / 4u, fours - 1u);
  vec4 sums[PIXELS];
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) sums[i] = vec4(0.0);
  for (uint begin = 0u; begin < p.channels_in; begin += CHANNELS) {
    if (begin > 0u) barrier();  // wait until no invocation is still reading the previous patches
    fetch(begin, first_x, corner);
    barrier();
    for (uint c = part * CHUNK; c < (part + 1u) * CHUNK && begin + c < p.channels_in; ++c) {
      for (uint th = 0u; th < KERNEL_H; ++th) {
        const uint from = (c * PATCH_H + row * STEP_H + th * DILATION_H) * PITCH + column * STEP_W / 4u;
        vec4 held[FOURS];
        [[unroll]] for (uint i = 0u; i < FOURS; ++i) held[i] = tile[from + i];
        [[unroll]] for (uint tw = 0u; tw < KERNEL_W; ++tw) {
          const vec4 weights = LOAD_W4(first_w + (tap_index(th, tw) * p.channels_in + begin + c) * fours);
          [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
            const uint at = i * STEP_W + tw * DILATION_W;
            sums[i] = fma(vec4(held[at / 4u][at % 4u]), weights, sums[i]);
          }
        }
      }
    }
  }
  if (SPLIT > 1u) {
    barrier();  // wait until no invocation is still reading the patches; sums reuse the memory
    [[unroll]] for (uint i = 0u; i < PIXELS; ++i) tile[(part * PIXELS + i) * PART + id] = sums[i];
    barrier();
  }
#if POOLS
  if (SPLIT == 1u) barrier();  // wait until no invocation is still reading the patches; outputs reuse the memory
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
    if (i % SPLIT == part) tile[i * PART + id] = as_stored(finished(whole_sum(sums[i], i, id, channel), 0u));
  }
  barrier();
  store_largest(image, first_row / POOL_H, first_column / POOL_W);
#else
  if (channel >= p.channels_out || first_row + row >= p.out_h) return;
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
    if (first_column + column + i >= p.out_w) break;
    if (i % SPLIT == part) store(uvec3(image, first_row + row, first_column + column + i), channel, whole_sum(sums[i], i, id, channel));
  }
#endif
}
