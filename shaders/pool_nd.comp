// Pooling over one to three spatial axes, for cases that pool.comp does not cover. MODE 0: maximum (NaN propagates), 1: average, 2: Lp
// norm.
//
// x, y: any strides and dtypes. INDICES: also stores the position of the maximum in the packed input. See include/window_3d.glsl for the
// window. One invocation computes one output element.
// For all devices. Selected in cpp/operators/window/pooling.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/window_range.glsl"
layout(local_size_x = 64) in;
#include "include/window_3d.glsl"
layout(binding = 0) readonly buffer X { X_TYPE x[]; };
layout(binding = 1) buffer Y { Y_TYPE y[]; };
#if INDICES
layout(binding = 2) writeonly buffer Indices { uvec2 indices[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements, channels;
  uint out_size[3];
  int in_size[3], padded[3];  // padded: input size with padding at both ends
  uint x_stride[5], y_stride[5];
  uint count_padding, column_major;
  float power;
  uint x_offset, y_offset;
#if INDICES
  uint indices_offset;
#endif
} p;

// Range of window indices inside `size` on each axis.
struct WindowRanges {
  ivec3 first, end;
};
WindowRanges window_ranges(ivec3 begin, ivec3 size) {
  WindowRanges ranges;
  for (int axis = 0; axis < 3; ++axis) {
    const ivec2 within = window_range(begin[axis], dilations()[axis], size[axis], kernel_size()[axis]);
    ranges.first[axis] = within.x, ranges.end[axis] = within.y;
  }
  return ranges;
}
float range_elements(WindowRanges within) {
  const vec3 sizes = vec3(within.end - within.first);
  return sizes.x * sizes.y * sizes.z;
}

void main() {
  const uint id = grid_invocation();
  if (id >= p.elements) return;
  const Position position = element_position(id, p.channels, uvec3(p.out_size[0], p.out_size[1], p.out_size[2]));
  const ivec3 size = ivec3(p.in_size[0], p.in_size[1], p.in_size[2]), begin = ivec3(position.at) * steps() - pads();
  const ivec3 padded = ivec3(p.padded[0], p.padded[1], p.padded[2]);
  float sum = MODE == 0 ? -pm_infinity : 0.0;
  ivec3 best = ivec3(-1);
  const WindowRanges within = window_ranges(begin, size);
  for (int d = within.first.x; d < within.end.x; ++d)
    for (int h = within.first.y; h < within.end.y; ++h)
      for (int w = within.first.z; w < within.end.z; ++w) {
        const ivec3 at = begin + ivec3(d, h, w) * dilations();
        const float v = pm_flush_subnormals(float(LOAD(p.x_offset + element_offset(position.n, position.c, uvec3(at), p.x_stride))));
#if MODE == 0
        if (best.x < 0 || v > sum || (pm_isnan(v) && !pm_isnan(sum))) {
          best = at;
          sum = v;
        }
#elif MODE == 1
        sum += v;
#else
        sum += p.power == 1.0 ? abs(v) : p.power == 2.0 ? v * v : pm_pow(abs(v), p.power);
#endif
      }
#if MODE == 1
  sum /= max(p.count_padding != 0u ? range_elements(window_ranges(begin + pads(), padded)) : range_elements(within), 1.0);
#elif MODE == 2
  sum = p.power == 1.0 ? sum : p.power == 2.0 ? pm_sqrt(sum) : pm_pow(sum, 1.0 / p.power);
#endif
  STORE(p.y_offset + element_offset(position.n, position.c, position.at, p.y_stride), RESULT(sum));
#if INDICES
  const int number = p.column_major == 0u ? (best.x * size.y + best.y) * size.z + best.z : (best.z * size.y + best.y) * size.x + best.x;
  indices[p.indices_offset + id] = uvec2((position.n * p.channels + position.c) * uint(size.x * size.y * size.z) + uint(number), 0u);
#endif
}
