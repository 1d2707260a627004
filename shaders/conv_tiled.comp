// Contraction for GPUs: a workgroup computes TILE_P pixels by TILE_C output channels through shared memory, 16 products deep a step;
// an invocation keeps a REG x REG tile in registers. The depth runs over (tap, input channel), channels fastest.
// Packed weights: [groups][kernel_taps][channels_in][channels_out rounded up to 4].
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
#include "include/contraction.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint INVOCATIONS = 256u;
layout(constant_id = 1) const uint TILE_P = 64u;
layout(constant_id = 2) const uint TILE_C = 64u;

#if X_VEC4
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
#endif
layout(binding = 1) readonly buffer W { sfpvec4 w[]; };
#if Y_VEC4
layout(binding = 2) writeonly buffer Y { sfpvec4 y[]; };
#else
layout(binding = 2) buffer Y { sfp y[]; };
#endif

const uint kDepth = 16u;
const uint kRows = 4u, kColumns = 4u;  // of an invocation's register tile

shared vec4 tile_x[kDepth * TILE_P / 4u];  // [depth][pixel]
shared vec4 tile_w[kDepth * TILE_C / 4u];  // [depth][channel]

// Four products deep for one pixel: elements (tap, channel .. channel + 3), zero outside the input and past the depth.
vec4 load_x(uvec3 place, uint image, uint depth, uint depths) {
  vec4 v = vec4(0.0);
#if X_VEC4
  if (depth >= depths) return v;
  const uint tap = depth / p.channels_in, channel = depth - tap * p.channels_in;
  const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
  uint at;
  return find_input(place, th, tw, at) ? pm_load_vec4(x, (image + at + channel) >> 2) : v;
#else
  for (uint i = 0u; i < 4u; ++i) {
    if (depth + i >= depths) break;
    const uint tap = (depth + i) / p.channels_in, channel = depth + i - tap * p.channels_in;
    const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
    uint at;
    if (find_input(place, th, tw, at)) v[i] = pm_load(x, image + at + channel * p.x_stride_c);
  }
  return v;
#endif
}

// Four output channels of the weights at one depth.
vec4 load_w(uint depth, uint depths, uint channel) {
  if (depth >= depths || channel >= p.channels_out) return vec4(0.0);
  const uint tap = depth / p.channels_in, channel_in = depth - tap * p.channels_in;
  const uint th = tap / TAPS_W, tw = tap - th * TAPS_W;
  const uint row = tap_index(th, tw) * p.channels_in + channel_in;
  return pm_load_vec4(w, (W_GROUP >> 2) + row * ((p.channels_out + 3u) / 4u) + channel / 4u);
}

void main() {
  const uint id = gl_LocalInvocationIndex;
  const uint first_pixel = gl_WorkGroupID.x * TILE_P, first_channel = gl_WorkGroupID.y * TILE_C;
  const uint depths = TAPS_H * TAPS_W * p.channels_in;
  const uint group_x = p.x_offset + gl_WorkGroupID.z * p.x_stride_group;
  const uint columns = TILE_C / kColumns;
  const uint row = id / columns, column = id % columns;  // of this invocation's register tile

  // What this invocation brings in: pixels id % TILE_P, from depth quad id / TILE_P on.
  const uint pixel = min(first_pixel + id % TILE_P, p.pixels - 1u);
  const uvec3 load_place = place_of(pixel);
  const uint image = group_x + load_place.x * p.x_stride_n;

  vec4 sums[kRows];
  for (uint i = 0u; i < kRows; ++i) sums[i] = vec4(0.0);
  for (uint depth = 0u; depth < depths; depth += kDepth) {
    for (uint q = id / TILE_P; q < kDepth / 4u; q += INVOCATIONS / TILE_P) {
      const vec4 v = load_x(load_place, image, depth + q * 4u, depths);
      const uint at = id % TILE_P;
      for (uint i = 0u; i < 4u; ++i) tile_x[((q * 4u + i) * TILE_P + at) / 4u][at & 3u] = v[i];
    }
    for (uint q = id; q < kDepth * TILE_C / 4u; q += INVOCATIONS) {
      const uint k = q / (TILE_C / 4u), c = q - k * (TILE_C / 4u);
      tile_w[q] = load_w(depth + k, depths, first_channel + c * 4u);
    }
    barrier();
    for (uint k = 0u; k < kDepth; ++k) {
      const vec4 a = tile_x[k * TILE_P / 4u + row], c = tile_w[k * TILE_C / 4u + column];
      for (uint i = 0u; i < kRows; ++i) sums[i] = fma(vec4(a[i]), c, sums[i]);
    }
    barrier();
  }

  const uint channel = first_channel + column * kColumns;
  if (channel >= p.channels_out) return;
  const vec4 bias = vec4(channel_bias(channel), channel_bias(channel + 1u), channel_bias(channel + 2u), channel_bias(channel + 3u));
  for (uint i = 0u; i < kRows; ++i) {
    const uint out_pixel = first_pixel + row * kRows + i;
    if (out_pixel >= p.pixels) return;
    const uint at = y_index(place_of(out_pixel)) + gl_WorkGroupID.z * p.y_stride_group + channel * p.y_stride_c;
    vec4 v;
    for (uint j = 0u; j < 4u; ++j) v[j] = epilogue(sums[i][j] + bias[j] + element_bias(out_pixel, channel + j));
#if Y_VEC4
    pm_store_vec4(y, at >> 2, v);
#else
    for (uint j = 0u; j < 4u; ++j)
      if (channel + j < p.channels_out) pm_store(y, at + j * p.y_stride_c, v[j]);
#endif
  }
}
