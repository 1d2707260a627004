// Contraction for GPUs: a workgroup computes TILE_P pixels by TILE_C output channels. SPLIT parts of it each sum every SPLIT-th stretch
// of 16 products through shared memory of their own, an invocation a tile of REGISTERS by REGISTERS; their sums meet at the end. The
// next stretch is on its way while one is summed. The depth runs over (tap, input channel), channels fastest.
// Packed weights: [groups][kernel_taps][channels_in][channels_out rounded up to 8].
#version 450
#extension GL_EXT_control_flow_attributes : require
#define GRID_AXES 0
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/contraction.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 256u;  // PART * SPLIT
layout(constant_id = 1) const uint TILE_P = 64u;
layout(constant_id = 2) const uint TILE_C = 64u;
layout(constant_id = 3) const uint SPLIT = 1u;
layout(constant_id = 4) const uint REGISTERS = 4u;  // 4 or 8

#include "include/contraction_arrays.glsl"

const uint kDepth = 16u;
const uint FOURS = REGISTERS / 4u;                    // fours of rows and of columns in an invocation's tile
const uint PART = TILE_P * TILE_C / (REGISTERS * REGISTERS);  // invocations
const uint ROWS = TILE_P / REGISTERS, COLUMNS = TILE_C / REGISTERS;  // invocations down and across
const uint ROW_X = TILE_P / 4u + 1u;  // a row of tile_x: one more, so that its rows begin in different banks
const uint QUADS_X = kDepth * TILE_P / 4u, QUADS_W = kDepth * TILE_C / 4u;  // vec4s that a part brings in for a stretch
const uint LOADS_X = (QUADS_X + PART - 1u) / PART, LOADS_W = (QUADS_W + PART - 1u) / PART;

shared Number4 tile_x[SPLIT * kDepth * ROW_X];  // [part][depth][pixel]
shared Number4 tile_w[SPLIT * QUADS_W];  // [part][depth][channel]

// Four products deep for one pixel: elements (tap, channel .. channel + 3), zero outside the input and past the depth.
Number4 load_x(uvec3 place, uint image, uint depth, uint depths) {
  Number4 v = Number4(0);
#if X_ZERO
  const int zero = zero_of_x(place);
#define LESS_ZERO(v) ((v) - zero)
#else
#define LESS_ZERO(v) (v)
#endif
#if X_VEC4
  if (depth >= depths) return v;
  const uint tap = tap_of(depth), channel = depth - tap * p.channels_in;
  const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
  uint at;
  return find_input(place, th, tw, at) ? LESS_ZERO(LOAD_X4(image + at + x_channel(channel))) : v;
#else
  for (uint i = 0u; i < 4u; ++i) {
    if (depth + i >= depths) break;
    const uint tap = tap_of(depth + i), channel = depth + i - tap * p.channels_in;
    const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
    uint at;
    if (find_input(place, th, tw, at)) v[i] = LESS_ZERO(LOAD_X(image + at + x_channel(channel)));
  }
  return v;
#endif
}

// Four output channels of the weights at one depth, of those from four number `first` on.
Number4 load_w(uint first, uint depth, uint depths, uint channel) {
  if (depth >= depths || channel >= p.channels_out) return Number4(0);
  const uint tap = tap_of(depth), channel_in = depth - tap * p.channels_in;
  const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
  const uint row = tap_index(th, tw) * p.channels_in + channel_in;
  return LOAD_W4(first + row * ((p.channels_out + 7u) / 8u * 2u) + channel / 4u);
}

void main() {
  const uint part = gl_LocalInvocationIndex / PART, id = gl_LocalInvocationIndex % PART;
  const uint first_pixel = grid_group().x * TILE_P, first_channel = grid_group().y * TILE_C;
  const uint depths = TAPS_H * TAPS_W * p.channels_in;
  const uint group_x = p.x_offset + X_GROUP, first_w = W_GROUP >> 2;
  // The rows and columns of this invocation's tile: fours of rows that are ROWS fours apart, and likewise of columns, so that neighbours
  // read neighbouring words.
  const uint row = id / COLUMNS, column = id % COLUMNS;
  const uint part_x = part * kDepth * ROW_X, part_w = part * QUADS_W;

  // The pixels that this invocation loads: quad q = id, id + PART, .. is pixel q / 4, four deep from q % 4 * 4 on, so that neighbours read
  // one row.
  uvec3 places[LOADS_X];
  uint images[LOADS_X];
  for (uint i = 0u; i < LOADS_X; ++i) {
    places[i] = place_of(min(first_pixel + (id + i * PART) / 4u % TILE_P, p.pixels - 1u));
    images[i] = group_x + places[i].x * p.x_stride_n;
  }
  Number4 next_x[LOADS_X], next_w[LOADS_W];
  Number4 sums[REGISTERS * FOURS];  // [row][four of columns]
  [[unroll]] for (uint i = 0u; i < REGISTERS * FOURS; ++i) sums[i] = Number4(0);
#if W_ZERO
  Number4 rows_of_x[FOURS];  // sums of x, from which the zero point of w is taken
  [[unroll]] for (uint i = 0u; i < FOURS; ++i) rows_of_x[i] = Number4(0);
#endif
  const uint stride = kDepth * SPLIT;
  for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = load_x(places[i], images[i], part * kDepth + (id + i * PART) % 4u * 4u, depths);
  for (uint i = 0u; i < LOADS_W; ++i) {
    const uint q = id + i * PART, k = q / (TILE_C / 4u);
    next_w[i] = load_w(first_w, part * kDepth + k, depths, first_channel + (q - k * (TILE_C / 4u)) * 4u);
  }
  for (uint begin = 0u; begin < depths; begin += stride) {
    for (uint i = 0u; i < LOADS_X; ++i) {
      const uint q = id + i * PART, at = q / 4u, k = q % 4u * 4u;
      if (q < QUADS_X)
        [[unroll]] for (uint j = 0u; j < 4u; ++j) tile_x[part_x + (k + j) * ROW_X + at / 4u][at & 3u] = next_x[i][j];
    }
    for (uint i = 0u; i < LOADS_W; ++i)
      if (id + i * PART < QUADS_W) tile_w[part_w + id + i * PART] = next_w[i];
    barrier();  // the stretch is in shared memory
    const uint next = begin + stride + part * kDepth;
    for (uint i = 0u; i < LOADS_X; ++i) next_x[i] = load_x(places[i], images[i], next + (id + i * PART) % 4u * 4u, depths);
    for (uint i = 0u; i < LOADS_W; ++i) {
      const uint q = id + i * PART, k = q / (TILE_C / 4u);
      next_w[i] = load_w(first_w, next + k, depths, first_channel + (q - k * (TILE_C / 4u)) * 4u);
    }

    [[unroll]] for (uint k = 0u; k < kDepth; ++k) {
      Number4 a[FOURS], c[FOURS];
      [[unroll]] for (uint i = 0u; i < FOURS; ++i) a[i] = tile_x[part_x + k * ROW_X + row + i * ROWS];
      [[unroll]] for (uint i = 0u; i < FOURS; ++i) c[i] = tile_w[part_w + k * TILE_C / 4u + column + i * COLUMNS];
      [[unroll]] for (uint i = 0u; i < REGISTERS; ++i)
        [[unroll]] for (uint j = 0u; j < FOURS; ++j)
          sums[i * FOURS + j] = multiply_add(Number4(a[i / 4u][i % 4u]), c[j], sums[i * FOURS + j]);
#if W_ZERO
      [[unroll]] for (uint i = 0u; i < FOURS; ++i) rows_of_x[i] += a[i];
#endif
    }
    barrier();  // nobody reads this stretch any more: the next one takes its place
  }
#if W_ZERO
  [[unroll]] for (uint j = 0u; j < FOURS; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    const ivec4 zero = ivec4(zero_of_w(channel), zero_of_w(channel + 1u), zero_of_w(channel + 2u), zero_of_w(channel + 3u));
    [[unroll]] for (uint i = 0u; i < REGISTERS; ++i) sums[i * FOURS + j] -= zero * rows_of_x[i / 4u][i % 4u];
  }
#endif
  // The first part takes in the sums of the others, a four of all tiles at a time.
  [[unroll]] for (uint i = 0u; i < REGISTERS * FOURS; ++i) {
    for (uint other = 1u; other < SPLIT; ++other) {
      if (part == other) tile_x[id] = sums[i];
      barrier();  // the sums of part `other` are in tile_x
      if (part == 0u) sums[i] += tile_x[id];
      barrier();  // they are read: the next ones take their place
    }
  }
  if (part > 0u) return;
  [[unroll]] for (uint j = 0u; j < FOURS; ++j) {
    const uint channel = first_channel + (column + j * COLUMNS) * 4u;
    if (channel >= p.channels_out) return;
    const Number4 bias = Number4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
    [[unroll]] for (uint i = 0u; i < REGISTERS; ++i) {
      const uint out_pixel = first_pixel + (row + i / 4u * ROWS) * 4u + i % 4u;
      if (out_pixel >= p.pixels) break;
      const uint at = y_index(place_of(out_pixel)) + Y_GROUP;
      Number4 sum = sums[i * FOURS + j] + bias;
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
