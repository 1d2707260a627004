// GEMM and implicit-GEMM convolution in shared memory for GPUs, for floats and 8-bit integers.
//
// See include/conv_gemm.glsl for the geometry. K runs over (tap, input channel), channels fastest. w: packed as
// [groups][kernel_taps][channels_in][channels_out rounded up to 8].
// Workgroup = TILE_M pixels (M) x TILE_N output channels (N), z = group. An invocation accumulates THREAD_M x THREAD_N outputs. SPLIT parts
// of the workgroup process every SPLIT-th K tile of 16, each in its own shared memory.
//   prefetch the first K tile
//   for each K tile of this part:
//     store x and w to shared memory; barrier; prefetch the next K tile
//     for each k: load THREAD_M + THREAD_N values; outer product into acc
//     barrier
//   reduce over SPLIT; bias; epilogue; store
// W_ZERO: the zero points of w are applied afterwards, using the row sums of x.
//
// For GPUs, as the general case. Selected in conv_gemm_plan.cpp (make_tiled_plan); conv_gemm_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 256u;  // THREADS_PER_SPLIT * SPLIT
layout(constant_id = 1) const uint TILE_M = 64u;
layout(constant_id = 2) const uint TILE_N = 64u;
layout(constant_id = 3) const uint SPLIT = 1u;
layout(constant_id = 4) const uint THREAD_M = 4u;  // 4 or 8
layout(constant_id = 5) const uint THREAD_N = 4u;  // 4 or 8

#include "include/conv_gemm_buffers.glsl"

// 0: needs fewer registers, but waits for each K tile, and unrolls only four steps of it.
#ifndef PREFETCH
#define PREFETCH 1
#endif
#if PREFETCH
#define FOR_K(k) [[unroll]] for (uint k = 0u; k < TILE_K; ++k)
#else
#define FOR_K(k) [[dont_unroll]] for (uint first_k = 0u; first_k < TILE_K; first_k += 4u) [[unroll]] for (uint k = first_k; k < first_k + 4u; ++k)
#endif

const uint TILE_K = 16u;
const uint VEC4_M = THREAD_M / 4u, VEC4_N = THREAD_N / 4u;               // number of vec4s of rows and of columns per invocation
const uint THREADS_PER_SPLIT = TILE_M * TILE_N / (THREAD_M * THREAD_N);  // invocations per K split; a multiple of 4
const uint ROWS = TILE_M / THREAD_M, COLUMNS = TILE_N / THREAD_N;  // number of invocations down and across
const uint ROW_X = TILE_M / 4u + 1u;  // padded by one to avoid bank conflicts
const uint ROW_W = TILE_N / 4u;
const uint VEC4_PER_X = TILE_K * TILE_M / 4u, VEC4_PER_W = TILE_K * ROW_W;  // number of vec4s per part and K tile
const uint LOADS_X = (VEC4_PER_X + THREADS_PER_SPLIT - 1u) / THREADS_PER_SPLIT, LOADS_W = (VEC4_PER_W + THREADS_PER_SPLIT - 1u) / THREADS_PER_SPLIT;
const uint APART_W = THREADS_PER_SPLIT / ROW_W;  // number of K steps between two loads of w

shared Acc4 tile_x[SPLIT * TILE_K * ROW_X];  // [part][k][pixel]
shared Acc4 tile_w[SPLIT * VEC4_PER_W];  // [part][k][channel]

Acc4 next_x[LOADS_X], next_w[LOADS_W];
// For each loaded pixel: index in x of the first tap's element (wraps around in the padding), then its corner and its zero point.
uint firsts[LOADS_X];
#if !MATRIX
ivec2 corners[LOADS_X];  // input row and column of the first tap
#endif
#if X_ZERO
int zeros[LOADS_X];
#define SUBTRACT_ZERO(v, i) ((v) - zeros[i])
#else
#define SUBTRACT_ZERO(v, i) (v)
#endif

// A reduction index, as tap and input channel.
struct KIndex {
  uint k_index, channel, th, tw;
};

KIndex to_k_index(uint k_index) {
#if MATRIX
  return KIndex(k_index, k_index, 0u, 0u);
#else
  const uint tap = k_index / max(p.channels_in, 1u), th = tap / max(TAPS_W, 1u);
  return KIndex(k_index, k_index - tap * p.channels_in, th, tap - th * TAPS_W);
#endif
}

// Adds two reduction indices without dividing.
KIndex advance(KIndex from, KIndex by) {
  KIndex to = KIndex(from.k_index + by.k_index, from.channel + by.channel, from.th + by.th, from.tw + by.tw);
#if !MATRIX
  if (to.channel >= p.channels_in) to.channel -= p.channels_in, ++to.tw;
  if (to.tw >= TAPS_W) to.tw -= TAPS_W, ++to.th;
#endif
  return to;
}

// Computes the index of load i in x. Returns false if it is out of range; `at` is then some valid index, so that the load needs no branch.
bool find_x_offset(uint i, KIndex k_pos, uint k_size, out uint at) {
  bool inside = k_pos.k_index < k_size;
  uint offset = x_channel(k_pos.channel);
#if !MATRIX
  const ivec2 tap = ivec2(int(k_pos.th) * p.tap_step_h, int(k_pos.tw) * p.tap_step_w), loaded = corners[i] + tap;
  inside = inside && uint(loaded.x) < uint(p.in_h) && uint(loaded.y) < uint(p.in_w);
  offset += uint(tap.x) * p.x_stride_h + uint(tap.y) * p.x_stride_w;
#endif
  at = inside ? firsts[i] + offset : p.x_offset;
  return inside;
}

// Loads four K steps per pixel; zero outside the input and past K.
void load_x_tile(KIndex k_pos, KIndex unit_step, uint k_size) {
#if X_VEC4
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
    uint at;
    const bool inside = find_x_offset(i, k_pos, k_size, at);
    const Acc4 loaded = LOAD_X4(at);
    next_x[i] = inside ? SUBTRACT_ZERO(loaded, i) : Acc4(0);
  }
#else
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
    [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
      uint at;
      const bool inside = find_x_offset(i, k_pos, k_size, at);
      const Acc loaded = LOAD_X(at);
      next_x[i][j] = inside ? SUBTRACT_ZERO(loaded, i) : Acc(0);
    }
    k_pos = advance(k_pos, unit_step);
  }
#endif
}

// Returns the row of the packed weights for a reduction index.
uint packed_weight_row(uint k_index) {
#if MATRIX
  return k_index;
#else
  if (p.tap_first == 0u && p.tap_row == TAPS_W && p.tap_column == 1u) return k_index;  // all taps, in order
  const KIndex k_pos = to_k_index(k_index);
  return tap_index(k_pos.th, k_pos.tw) * p.channels_in + k_pos.channel;
#endif
}

// Loads four output channels of w, starting at vec4 `first`.
void load_w_tile(uint first, uint id, uint begin, uint k_size, bool in_range) {
  const uint row_vec4 = (p.channels_out + 7u) / 8u * 2u;
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) {
    const uint k = id / ROW_W + i * APART_W, k_index = begin + k;
    const bool inside = in_range && k < TILE_K && k_index < k_size;
    const Acc4 loaded = LOAD_W4(first + packed_weight_row(inside ? k_index : 0u) * row_vec4);
    next_w[i] = inside ? loaded : Acc4(0);
  }
}

void main() {
  const uint split = gl_LocalInvocationIndex / THREADS_PER_SPLIT, id = gl_LocalInvocationIndex % THREADS_PER_SPLIT;
  const uint first_pixel = grid_group().x * TILE_M, first_channel = grid_group().y * TILE_N;
  const uint k_size = TAPS_H * TAPS_W * p.channels_in;
  // Position of this invocation in the tile. The vec4s of an invocation are ROWS apart vertically and COLUMNS apart horizontally, so that
  // adjacent invocations read adjacent words.
  const uint row = id / COLUMNS, column = id % COLUMNS;
  const uint split_x = split * TILE_K * ROW_X, split_w = split * VEC4_PER_W;

  // Load q = id, id + THREADS_PER_SPLIT, ... covers pixel q / 4 and K steps q % 4 * 4 .. + 3, so that adjacent invocations read the same
  // pixel.
  for (uint i = 0u; i < LOADS_X; ++i) {
    const uvec3 pixel = pixel_position(min(first_pixel + (id + i * THREADS_PER_SPLIT) / 4u % TILE_M, p.pixels - 1u));
    firsts[i] = p.x_offset + X_GROUP + pixel.x * p.x_stride_n;
#if MATRIX
    firsts[i] += pixel.z * p.x_stride_w;
#else
    corners[i] = ivec2(int(pixel.y) * p.in_step_h + p.base_h, int(pixel.z) * p.in_step_w + p.base_w);
    firsts[i] += uint(corners[i].x) * p.x_stride_h + uint(corners[i].y) * p.x_stride_w;
#endif
#if X_ZERO
    zeros[i] = x_zero_point(pixel);
#endif
  }
  const uint channel_w = first_channel + id % ROW_W * 4u;  // first channel of this invocation's weight loads
  const bool has_w = channel_w < p.channels_out;
  const uint first_w = (W_GROUP >> 2) + (has_w ? channel_w / 4u : 0u);
  Acc4 sums[THREAD_M * VEC4_N];  // [row][vec4 of columns]
  [[unroll]] for (uint i = 0u; i < THREAD_M * VEC4_N; ++i) sums[i] = Acc4(0);
#if W_ZERO
  Acc4 x_row_sums[VEC4_M];  // row sums of x, for the zero point of w
  [[unroll]] for (uint i = 0u; i < VEC4_M; ++i) x_row_sums[i] = Acc4(0);
#endif
  const KIndex stride = to_k_index(TILE_K * SPLIT), unit_step = to_k_index(1u);
  KIndex k_pos = to_k_index(split * TILE_K + id % 4u * 4u);
#if PREFETCH
  if (k_size > 0u) {
    load_x_tile(k_pos, unit_step, k_size);
    load_w_tile(first_w, id, split * TILE_K, k_size, has_w);
  }
#endif
  for (uint begin = 0u; begin < k_size; begin += stride.k_index) {
#if !PREFETCH
    load_x_tile(k_pos, unit_step, k_size);
    load_w_tile(first_w, id, begin + split * TILE_K, k_size, has_w);
#endif
    [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
      const uint q = id + i * THREADS_PER_SPLIT, at = q / 4u, k = q % 4u * 4u;
      if (q < VEC4_PER_X)
        [[unroll]] for (uint j = 0u; j < 4u; ++j) tile_x[split_x + (k + j) * ROW_X + at / 4u][at & 3u] = next_x[i][j];
    }
    [[unroll]] for (uint i = 0u; i < LOADS_W; ++i)
      if (id + i * THREADS_PER_SPLIT < VEC4_PER_W) tile_w[split_w + id + i * THREADS_PER_SPLIT] = next_w[i];
    barrier();
    k_pos = advance(k_pos, stride);
#if PREFETCH
    load_x_tile(k_pos, unit_step, k_size);
    load_w_tile(first_w, id, begin + stride.k_index + split * TILE_K, k_size, has_w);
#endif

    FOR_K(k) {
      Acc4 a[VEC4_M], c[VEC4_N];
      [[unroll]] for (uint i = 0u; i < VEC4_M; ++i) a[i] = tile_x[split_x + k * ROW_X + row + i * ROWS];
      [[unroll]] for (uint i = 0u; i < VEC4_N; ++i) c[i] = tile_w[split_w + k * ROW_W + column + i * COLUMNS];
      [[unroll]] for (uint i = 0u; i < THREAD_M; ++i)
        [[unroll]] for (uint j = 0u; j < VEC4_N; ++j)
          sums[i * VEC4_N + j] = fused_multiply_add(Acc4(a[i / 4u][i % 4u]), c[j], sums[i * VEC4_N + j]);
#if W_ZERO
      [[unroll]] for (uint i = 0u; i < VEC4_M; ++i) x_row_sums[i] += a[i];
#endif
    }
    barrier();  // wait until no invocation is still reading the K tile
  }
#if W_ZERO
  [[unroll]] for (uint j = 0u; j < VEC4_N; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    const ivec4 zero = ivec4(w_zero_point(channel), w_zero_point(channel + 1u), w_zero_point(channel + 2u), w_zero_point(channel + 3u));
    [[unroll]] for (uint i = 0u; i < THREAD_M; ++i) sums[i * VEC4_N + j] -= zero * x_row_sums[i / 4u][i % 4u];
  }
#endif
  // Reduce over SPLIT into part 0, one vec4 per invocation at a time.
  [[unroll]] for (uint i = 0u; i < THREAD_M * VEC4_N; ++i) {
    for (uint other = 1u; other < SPLIT; ++other) {
      if (split == other) tile_x[id] = sums[i];
      barrier();
      if (split == 0u) sums[i] += tile_x[id];
      barrier();  // wait until part 0 has read the sums
    }
  }
  if (split > 0u) return;
  Acc4 bias[VEC4_N];
  [[unroll]] for (uint j = 0u; j < VEC4_N; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    bias[j] = Acc4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
  }
  [[unroll]] for (uint i = 0u; i < THREAD_M; ++i) {
    const uint out_pixel = first_pixel + (row + i / 4u * ROWS) * 4u + i % 4u;
    if (out_pixel >= p.pixels) break;
    const uint at = y_index(pixel_position(out_pixel)) + Y_GROUP;
    [[unroll]] for (uint j = 0u; j < VEC4_N; ++j) {
      const uint channel = first_channel + (column + j * COLUMNS) * 4u;
      if (channel >= p.channels_out) break;
      Acc4 sum = sums[i * VEC4_N + j] + bias[j];
      for (uint k = 0u; k < 4u; ++k) sum[k] += element_bias(out_pixel, channel + k);
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
  }
}
