// Convolution of few channels with many taps, without cooperative matrices. The input patch with its halo is in shared memory.
//
// See include/conv_gemm.glsl for the geometry. w: packed as [groups][kernel_taps][channels_in][channels_out rounded up to 8].
// Workgroup = TILE_H x TILE_W pixels of an image x TILE_N output channels, z = group. An invocation accumulates PIXELS neighbouring pixels
// of a row x 4 channels. SPLIT parts of the workgroup process CHUNK input channels each.
//   for each SPLIT * CHUNK input channels:
//     load the patch to shared memory, all loads first; barrier
//     for each channel of this part, for each th: load a patch row into registers; for each tw: acc += x w
//   reduce over SPLIT in shared memory; bias; epilogue; store
// POOLS: fuses MaxPool over POOL_H x POOL_W. Finished results, rounded as if stored, go through shared memory; tiles contain whole windows.
//
// For GPUs. Selected in conv_gemm_plan.cpp (make_patch_plan); patch_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 128u;  // SPLIT invocations for each PIXELS x 4 channels
layout(constant_id = 1) const uint TILE_H = 8u;
layout(constant_id = 2) const uint TILE_W = 16u;
layout(constant_id = 3) const uint TILE_N = 16u;
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
const uint THREADS_PER_SPLIT = GROUPS * (TILE_N / 4u);
const uint PATCH_H = (TILE_H - 1u) * STEP_H + (KERNEL_H - 1u) * DILATION_H + 1u;
const uint SPAN = (PIXELS - 1u) * STEP_W + (KERNEL_W - 1u) * DILATION_W + 1u;  // number of elements of a patch row that an invocation reads
const uint ROW_VEC4 = (SPAN + 3u) / 4u;
const uint PITCH = (GROUPS_W - 1u) * PIXELS * STEP_W / 4u + ROW_VEC4;  // vec4s per patch row
const uint AREA = PATCH_H * PITCH * 4u;
const uint CHANNELS = SPLIT * CHUNK;  // input channels in shared memory
const uint LOAD_CHANNELS = X_VEC4 == 1 ? 4u : 1u;  // number of channels per load
const uint ITEMS = CHANNELS / LOAD_CHANNELS * AREA, LOADS = (ITEMS + INVOCATIONS - 1u) / INVOCATIONS;
const uint OPERAND_WORDS = CHANNELS * AREA / 4u, OUTPUT_WORDS = SPLIT > 1u || POOLS == 1 ? INVOCATIONS * PIXELS : 0u;
shared vec4 tile[OPERAND_WORDS > OUTPUT_WORDS ? OPERAND_WORDS : OUTPUT_WORDS];  // [channel][row][vec4], or partial sums

// Loads the patches of the channels starting at `begin` to shared memory; zero outside the input and past its channels. All loads are
// issued before the first store.
void load_patch(uint begin, uint first_x, ivec2 corner) {
#if X_VEC4
  vec4 loaded[LOADS];
#else
  float loaded[LOADS];
#endif
  [[unroll]] for (uint i = 0u; i < LOADS; ++i) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
#if X_VEC4
    // adjacent invocations read adjacent channels
    const uint channel = item % (CHANNELS / LOAD_CHANNELS) * LOAD_CHANNELS, at = item / (CHANNELS / LOAD_CHANNELS);
#else
    const uint channel = item / AREA, at = item % AREA;
#endif
    const ivec2 position = corner + ivec2(int(at / (PITCH * 4u)), int(at % (PITCH * 4u)));
    const bool inside = item < ITEMS && begin + channel < p.channels_in && uint(position.x) < uint(p.in_h) && uint(position.y) < uint(p.in_w);
    const uint from = first_x + uint(position.x) * p.x_stride_h + uint(position.y) * p.x_stride_w + x_channel(begin + channel);
#if X_VEC4
    const vec4 value4 = LOAD_X4(inside ? from : p.x_offset);
    loaded[i] = inside ? value4 : vec4(0.0);
#else
    const float value = LOAD_X(inside ? from : p.x_offset);
    loaded[i] = inside ? value : 0.0;
#endif
  }
  [[unroll]] for (uint i = 0u; i < LOADS; ++i) {
    const uint item = gl_LocalInvocationIndex + i * INVOCATIONS;
    if (item >= ITEMS) break;
#if X_VEC4
    const uint channel = item % (CHANNELS / LOAD_CHANNELS) * LOAD_CHANNELS, at = item / (CHANNELS / LOAD_CHANNELS);
    [[unroll]] for (uint k = 0u; k < 4u; ++k) tile[(channel + k) * (AREA / 4u) + at / 4u][at % 4u] = loaded[i][k];
#else
    tile[item / 4u][item % 4u] = loaded[i];
#endif
  }
}

// Returns the sum of four channels of a pixel, with bias. With SPLIT, only this invocation reads the partial sums of this pixel.
vec4 reduce_split(vec4 partial, uint pixel, uint id, uint channel) {
  vec4 sum = vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
  if (SPLIT == 1u) return sum + partial;
  for (uint k = 0u; k < SPLIT; ++k) sum += tile[(k * PIXELS + pixel) * THREADS_PER_SPLIT + id];
  return sum;
}

#if POOLS
// Rounds as storing to y would.
vec4 round_to_stored(vec4 v) {
#if Y_FLOAT
  return v;
#else
  return pm_stored_vec4(v);
#endif
}

// MaxPool over the windows of the tile. Channels 4q .. 4q + 3 of pixel (row, column) are in tile[column % PIXELS * THREADS_PER_SPLIT + q *
// GROUPS + row * GROUPS_W + column / PIXELS].
void store_pool_maxima(uint image, uint first_row, uint first_column) {
  const uint across = TILE_W / POOL_W, down = TILE_H / POOL_H, count = across * down * (TILE_N / 4u);
  for (uint item = gl_LocalInvocationIndex; item < count; item += INVOCATIONS) {
    const uint q = item / (across * down), row = item / across % down, column = item % across;
    const uint channel = grid_group().y * TILE_N + q * 4u;
    if (channel >= p.channels_out || first_row + row >= p.out_h / POOL_H || first_column + column >= p.out_w / POOL_W) continue;
    vec4 largest = vec4(uintBitsToFloat(0xff800000u));
    for (uint i = 0u; i < POOL_H; ++i) {
      for (uint j = 0u; j < POOL_W; ++j) {
        const uint at = column * POOL_W + j;
        const vec4 v = tile[at % PIXELS * THREADS_PER_SPLIT + q * GROUPS + (row * POOL_H + i) * GROUPS_W + at / PIXELS];
        [[unroll]] for (uint k = 0u; k < 4u; ++k) largest[k] = pm_max(largest[k], v[k]);
      }
    }
    const uint index = y_index(uvec3(image, first_row + row, first_column + column)) + Y_GROUP;
    const vec4 pooled = vec4(pool_epilogue(largest.x), pool_epilogue(largest.y), pool_epilogue(largest.z), pool_epilogue(largest.w));
#if Y_VEC4
    STORE_Y4(index + y_channel(channel), pooled);
#else
    for (uint k = 0u; k < 4u; ++k) {
      if (channel + k < p.channels_out) STORE_Y(index + y_channel(channel + k), pooled[k]);
    }
#endif
  }
}
#else
void store_channels(uvec3 pixel, uint channel, vec4 sum) {
  const uint at = y_index(pixel) + Y_GROUP;
#if Y_VEC4
  const uint index = at + y_channel(channel);
  STORE_Y4(index, apply_epilogue(sum, index));
#else
  for (uint k = 0u; k < 4u; ++k) {
    const uint index = at + y_channel(channel + k);
    if (channel + k < p.channels_out) STORE_Y(index, apply_epilogue(sum[k], index));
  }
#endif
}
#endif

void main() {
  const uint split = gl_LocalInvocationIndex / THREADS_PER_SPLIT, id = gl_LocalInvocationIndex % THREADS_PER_SPLIT;
  const uint group = id % GROUPS, row = group / GROUPS_W, column = group % GROUPS_W * PIXELS;
  const uint tiles_w = (p.out_w + TILE_W - 1u) / TILE_W, tiles_h = (p.out_h + TILE_H - 1u) / TILE_H;
  const uint image = grid_group().x / (tiles_w * tiles_h), number = grid_group().x - image * (tiles_w * tiles_h);
  const uint first_row = number / tiles_w * TILE_H, first_column = number % tiles_w * TILE_W;
  const uint channel = grid_group().y * TILE_N + id / GROUPS * 4u;
  const ivec2 corner = ivec2(first_row * STEP_H, first_column * STEP_W) + ivec2(p.base_h, p.base_w);
  const uint first_x = p.x_offset + X_GROUP + image * p.x_stride_n;
  const uint row_vec4s = (p.channels_out + 7u) / 8u * 2u;
  const uint first_w = (W_GROUP >> 2) + min(channel / 4u, row_vec4s - 1u);
  vec4 sums[PIXELS];
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) sums[i] = vec4(0.0);
  for (uint begin = 0u; begin < p.channels_in; begin += CHANNELS) {
    if (begin > 0u) barrier();  // wait until no invocation is still reading the previous patches
    load_patch(begin, first_x, corner);
    barrier();
    for (uint c = split * CHUNK; c < (split + 1u) * CHUNK && begin + c < p.channels_in; ++c) {
      for (uint th = 0u; th < KERNEL_H; ++th) {
        const uint from = (c * PATCH_H + row * STEP_H + th * DILATION_H) * PITCH + column * STEP_W / 4u;
        vec4 row_x[ROW_VEC4];
        [[unroll]] for (uint i = 0u; i < ROW_VEC4; ++i) row_x[i] = tile[from + i];
        [[unroll]] for (uint tw = 0u; tw < KERNEL_W; ++tw) {
          const vec4 weights = LOAD_W4(first_w + (tap_index(th, tw) * p.channels_in + begin + c) * row_vec4s);
          [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
            const uint at = i * STEP_W + tw * DILATION_W;
            sums[i] = fma(vec4(row_x[at / 4u][at % 4u]), weights, sums[i]);
          }
        }
      }
    }
  }
  if (SPLIT > 1u) {
    barrier();  // wait until no invocation is still reading the patches; sums reuse the memory
    [[unroll]] for (uint i = 0u; i < PIXELS; ++i) tile[(split * PIXELS + i) * THREADS_PER_SPLIT + id] = sums[i];
    barrier();
  }
#if POOLS
  if (SPLIT == 1u) barrier();  // wait until no invocation is still reading the patches; outputs reuse the memory
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
    if (i % SPLIT == split) tile[i * THREADS_PER_SPLIT + id] = round_to_stored(apply_epilogue(reduce_split(sums[i], i, id, channel), 0u));
  }
  barrier();
  store_pool_maxima(image, first_row / POOL_H, first_column / POOL_W);
#else
  if (channel >= p.channels_out || first_row + row >= p.out_h) return;
  [[unroll]] for (uint i = 0u; i < PIXELS; ++i) {
    if (first_column + column + i >= p.out_w) break;
    if (i % SPLIT == split) store_channels(uvec3(image, first_row + row, first_column + column + i), channel, reduce_split(sums[i], i, id, channel));
  }
#endif
}
