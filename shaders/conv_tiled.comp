// GEMM and implicit-GEMM convolution in shared memory for GPUs, for floats and 8-bit integers.
//
// See include/conv_gemm.glsl for the geometry. K runs over (tap, input channel), channels fastest. w: packed as
// [groups][kernel_taps][channels_in][channels_out rounded up to 8].
// Workgroup = TILE_P pixels (M) x TILE_C output channels (N), z = group. An invocation accumulates REGISTERS_P x REGISTERS_C. SPLIT parts
// of the workgroup process every SPLIT-th K tile of 16, each in its own shared memory.
//   prefetch the first K tile
//   for each K tile of this part:
//     store x and w to shared memory; barrier; prefetch the next K tile
//     for each k: load REGISTERS_P + REGISTERS_C values; outer product into acc
//     barrier
//   reduce over SPLIT; bias; epilogue; store
// W_ZERO subtracts zero points of w afterwards, from the row sums of x.
//
// For GPUs, as the general case. Selected in conv_gemm_plan.cpp (tiled_plan); conv_gemm_tiling.cpp chooses the tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/conv_gemm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 256u;  // PART * SPLIT
layout(constant_id = 1) const uint TILE_P = 64u;
layout(constant_id = 2) const uint TILE_C = 64u;
layout(constant_id = 3) const uint SPLIT = 1u;
layout(constant_id = 4) const uint REGISTERS_P = 4u;  // 4 or 8
layout(constant_id = 5) const uint REGISTERS_C = 4u;  // 4 or 8

#include "include/conv_gemm_buffers.glsl"

const uint kDepth = 16u;
const uint FOURS_P = REGISTERS_P / 4u, FOURS_C = REGISTERS_C / 4u;  // number of vec4s of rows and of columns per invocation
const uint PART = TILE_P * TILE_C / (REGISTERS_P * REGISTERS_C);    // invocations per K split; a multiple of 4
const uint ROWS = TILE_P / REGISTERS_P, COLUMNS = TILE_C / REGISTERS_C;  // number of invocations down and across
const uint ROW_X = TILE_P / 4u + 1u;  // padded by one to avoid bank conflicts
const uint ROW_W = TILE_C / 4u;
const uint QUADS_X = kDepth * TILE_P / 4u, QUADS_W = kDepth * ROW_W;  // number of vec4s per part and K tile
const uint LOADS_X = (QUADS_X + PART - 1u) / PART, LOADS_W = (QUADS_W + PART - 1u) / PART;
const uint APART_W = PART / ROW_W;  // number of K steps between two loads of w

shared Number4 tile_x[SPLIT * kDepth * ROW_X];  // [part][k][pixel]
shared Number4 tile_w[SPLIT * QUADS_W];  // [part][k][channel]

Number4 next_x[LOADS_X], next_w[LOADS_W];
// For each loaded pixel: index in x of the first tap's element (wraps around in the padding) and, with X_ZERO, the zero point.
uint firsts[LOADS_X];
#if !MATRIX
ivec2 corners[LOADS_X];  // input row and column of the first tap
#endif
#if X_ZERO
int zeros[LOADS_X];
#define LESS_ZERO(v, i) ((v) - zeros[i])
#else
#define LESS_ZERO(v, i) (v)
#endif

// A reduction index, as tap and input channel.
struct Place {
  uint depth, channel, th, tw;
};

Place place_in(uint depth) {
#if MATRIX
  return Place(depth, depth, 0u, 0u);
#else
  const uint tap = depth / max(p.channels_in, 1u), th = tap / max(TAPS_W, 1u);
  return Place(depth, depth - tap * p.channels_in, th, tap - th * TAPS_W);
#endif
}

// Adds two reduction indices without a division.
Place further(Place from, Place by) {
  Place to = Place(from.depth + by.depth, from.channel + by.channel, from.th + by.th, from.tw + by.tw);
#if !MATRIX
  if (to.channel >= p.channels_in) to.channel -= p.channels_in, ++to.tw;
  if (to.tw >= TAPS_W) to.tw -= TAPS_W, ++to.th;
#endif
  return to;
}

// Computes the index for load i. Returns false if it is out of range; the index is then some valid one, so that the load needs no branch.
bool find(uint i, Place place, uint depths, out uint at) {
  bool inside = place.depth < depths;
  uint way = x_channel(place.channel);
#if !MATRIX
  const ivec2 tap = ivec2(int(place.th) * p.tap_step_h, int(place.tw) * p.tap_step_w), found = corners[i] + tap;
  inside = inside && uint(found.x) < uint(p.in_h) && uint(found.y) < uint(p.in_w);
  way += uint(tap.x) * p.x_stride_h + uint(tap.y) * p.x_stride_w;
#endif
  at = inside ? firsts[i] + way : p.x_offset;
  return inside;
}

// Loads four K steps per pixel; zero outside the input and past K.
void fetch_x(Place place, Place one, uint depths) {
#if X_VEC4
  [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
    uint at;
    const bool inside = find(i, place, depths, at);
    const Number4 found = LOAD_X4(at);
    next_x[i] = inside ? LESS_ZERO(found, i) : Number4(0);
  }
#else
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
    [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
      uint at;
      const bool inside = find(i, place, depths, at);
      const Number found = LOAD_X(at);
      next_x[i][j] = inside ? LESS_ZERO(found, i) : Number(0);
    }
    place = further(place, one);
  }
#endif
}

// Returns the row of the packed weights for a reduction index.
uint row_of(uint depth) {
#if MATRIX
  return depth;
#else
  if (p.tap_first == 0u && p.tap_row == TAPS_W && p.tap_column == 1u) return depth;  // all taps, in order
  const Place place = place_in(depth);
  return tap_index(place.th, place.tw) * p.channels_in + place.channel;
#endif
}

// Loads four output channels of w from vec4 `first` on.
void fetch_w(uint first, uint id, uint begin, uint depths, bool there) {
  const uint fours = (p.channels_out + 7u) / 8u * 2u;
  [[unroll]] for (uint i = 0u; i < LOADS_W; ++i) {
    const uint k = id / ROW_W + i * APART_W, depth = begin + k;
    const bool inside = there && k < kDepth && depth < depths;
    const Number4 found = LOAD_W4(first + row_of(inside ? depth : 0u) * fours);
    next_w[i] = inside ? found : Number4(0);
  }
}

void main() {
  const uint part = gl_LocalInvocationIndex / PART, id = gl_LocalInvocationIndex % PART;
  const uint first_pixel = grid_group().x * TILE_P, first_channel = grid_group().y * TILE_C;
  const uint depths = TAPS_H * TAPS_W * p.channels_in;
  // Position in the tile. The vec4s of an invocation are ROWS apart vertically and COLUMNS apart horizontally, so that adjacent invocations
  // read adjacent words.
  const uint row = id / COLUMNS, column = id % COLUMNS;
  const uint part_x = part * kDepth * ROW_X, part_w = part * QUADS_W;

  // Load q = id, id + PART, ... covers pixel q / 4 and K steps q % 4 * 4 .. + 3, so that adjacent invocations read the same pixel.
  for (uint i = 0u; i < LOADS_X; ++i) {
    const uvec3 pixel = place_of(min(first_pixel + (id + i * PART) / 4u % TILE_P, p.pixels - 1u));
    firsts[i] = p.x_offset + X_GROUP + pixel.x * p.x_stride_n;
#if MATRIX
    firsts[i] += pixel.z * p.x_stride_w;
#else
    corners[i] = ivec2(int(pixel.y) * p.in_step_h + p.base_h, int(pixel.z) * p.in_step_w + p.base_w);
    firsts[i] += uint(corners[i].x) * p.x_stride_h + uint(corners[i].y) * p.x_stride_w;
#endif
#if X_ZERO
    zeros[i] = zero_of_x(pixel);
#endif
  }
  const uint channel_w = first_channel + id % ROW_W * 4u;  // first channel of this invocation's weight loads
  const bool has_w = channel_w < p.channels_out;
  const uint first_w = (W_GROUP >> 2) + (has_w ? channel_w / 4u : 0u);
  Number4 sums[REGISTERS_P * FOURS_C];  // [row][vec4 of columns]
  [[unroll]] for (uint i = 0u; i < REGISTERS_P * FOURS_C; ++i) sums[i] = Number4(0);
#if W_ZERO
  Number4 rows_of_x[FOURS_P];  // row sums of x, for the zero point of w
  [[unroll]] for (uint i = 0u; i < FOURS_P; ++i) rows_of_x[i] = Number4(0);
#endif
  const Place stride = place_in(kDepth * SPLIT), one = place_in(1u);
  Place place = place_in(part * kDepth + id % 4u * 4u);
  if (depths > 0u) {
    fetch_x(place, one, depths);
    fetch_w(first_w, id, part * kDepth, depths, has_w);
  }
  for (uint begin = 0u; begin < depths; begin += stride.depth) {
    [[unroll]] for (uint i = 0u; i < LOADS_X; ++i) {
      const uint q = id + i * PART, at = q / 4u, k = q % 4u * 4u;
      if (q < QUADS_X)
        [[unroll]] for (uint j = 0u; j < 4u; ++j) tile_x[part_x + (k + j) * ROW_X + at / 4u][at & 3u] = next_x[i][j];
    }
    [[unroll]] for (uint i = 0u; i < LOADS_W; ++i)
      if (id + i * PART < QUADS_W) tile_w[part_w + id + i * PART] = next_w[i];
    barrier();
    place = further(place, stride);
    fetch_x(place, one, depths);
    fetch_w(first_w, id, begin + stride.depth + part * kDepth, depths, has_w);

    [[unroll]] for (uint k = 0u; k < kDepth; ++k) {
      Number4 a[FOURS_P], c[FOURS_C];
      [[unroll]] for (uint i = 0u; i < FOURS_P; ++i) a[i] = tile_x[part_x + k * ROW_X + row + i * ROWS];
      [[unroll]] for (uint i = 0u; i < FOURS_C; ++i) c[i] = tile_w[part_w + k * ROW_W + column + i * COLUMNS];
      [[unroll]] for (uint i = 0u; i < REGISTERS_P; ++i)
        [[unroll]] for (uint j = 0u; j < FOURS_C; ++j)
          sums[i * FOURS_C + j] = multiply_add(Number4(a[i / 4u][i % 4u]), c[j], sums[i * FOURS_C + j]);
#if W_ZERO
      [[unroll]] for (uint i = 0u; i < FOURS_P; ++i) rows_of_x[i] += a[i];
#endif
    }
    barrier();  // wait until no invocation is still reading the K tile
  }
#if W_ZERO
  [[unroll]] for (uint j = 0u; j < FOURS_C; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    const ivec4 zero = ivec4(zero_of_w(channel), zero_of_w(channel + 1u), zero_of_w(channel + 2u), zero_of_w(channel + 3u));
    [[unroll]] for (uint i = 0u; i < REGISTERS_P; ++i) sums[i * FOURS_C + j] -= zero * rows_of_x[i / 4u][i % 4u];
  }
#endif
  // Reduce over SPLIT into part 0, one vec4 per invocation at a time.
  [[unroll]] for (uint i = 0u; i < REGISTERS_P * FOURS_C; ++i) {
    for (uint other = 1u; other < SPLIT; ++other) {
      if (part == other) tile_x[id] = sums[i];
      barrier();
      if (part == 0u) sums[i] += tile_x[id];
      barrier();  // wait until part 0 has read the sums
    }
  }
  if (part > 0u) return;
  Number4 bias[FOURS_C];
  [[unroll]] for (uint j = 0u; j < FOURS_C; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    bias[j] = Number4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
  }
  [[unroll]] for (uint i = 0u; i < REGISTERS_P; ++i) {
    const uint out_pixel = first_pixel + (row + i / 4u * ROWS) * 4u + i % 4u;
    if (out_pixel >= p.pixels) break;
    const uint at = y_index(place_of(out_pixel)) + Y_GROUP;
    [[unroll]] for (uint j = 0u; j < FOURS_C; ++j) {
      const uint channel = first_channel + (column + j * COLUMNS) * 4u;
      if (channel >= p.channels_out) break;
      Number4 sum = sums[i * FOURS_C + j] + bias[j];
      for (uint k = 0u; k < 4u; ++k) sum[k] += element_bias(out_pixel, channel + k);
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
  }
}
