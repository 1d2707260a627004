// Convolution over three spatial axes, plain or TRANSPOSED, one element an invocation; weights as ONNX has them.
#version 450
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
#include "include/volume.glsl"
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) readonly buffer W { sfp w[]; };
layout(binding = 2) buffer Y { sfp y[]; };
#if HAS_BIAS
layout(binding = 3) readonly buffer B { float b[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements;
  uint channels_in, channels_out, groups;  // channels of one group
  uint out_size[3];
  int in_size[3];
  uint x_stride[5], y_stride[5];
  uint x_offset, y_offset, w_offset;
} p;

void main() {
  const uint id = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (id >= p.elements) return;
  const Place place = place_of(id, p.channels_out * p.groups, uvec3(p.out_size[0], p.out_size[1], p.out_size[2]));
  const uint group = place.c / p.channels_out, channel = place.c - group * p.channels_out;
  const uint taps = uint(KERNEL_D * KERNEL_H * KERNEL_W);
  const ivec3 size = ivec3(p.in_size[0], p.in_size[1], p.in_size[2]);
#if TRANSPOSED
  const uint first = p.w_offset + (group * p.channels_in * p.channels_out + channel) * taps, next = p.channels_out * taps;
#else
  const uint first = p.w_offset + place.c * p.channels_in * taps, next = taps;
#endif
  float sum = 0.0;
  uint tap = 0u;
  for (int d = 0; d < KERNEL_D; ++d)
    for (int h = 0; h < KERNEL_H; ++h)
      for (int i = 0; i < KERNEL_W; ++i, ++tap) {
#if TRANSPOSED
        const ivec3 full = ivec3(place.at) + pads() - ivec3(d, h, i) * dilations(), at = full / steps();
        if (any(lessThan(full, ivec3(0))) || at * steps() != full || !is_inside(at, size)) continue;
#else
        const ivec3 at = ivec3(place.at) * steps() - pads() + ivec3(d, h, i) * dilations();
        if (!is_inside(at, size)) continue;
#endif
        uint from = p.x_offset + index_of(place.n, group * p.channels_in, uvec3(at), p.x_stride), weight = first + tap;
        for (uint c = 0u; c < p.channels_in; ++c) {
          sum += pm_load(x, from) * pm_load(w, weight);
          from += p.x_stride[1];
          weight += next;
        }
      }
#if HAS_BIAS
  sum += b[place.c];
#endif
  pm_store(y, p.y_offset + index_of(place.n, place.c, place.at, p.y_stride), EPILOGUE(sum));
}
