// Convolution over three spatial axes, plain or TRANSPOSED, for floats and 8-bit integers (INTEGER, accumulated as int32).
//
// x, y: any strides. w: as in ONNX. See include/window_3d.glsl for the window. One invocation computes one element, in a loop over taps and
// channels.
//
// For all devices. Selected in cpp/operators/conv_gemm/conv3d.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
layout(local_size_x = 64) in;
#include "include/window_3d.glsl"
// INTEGER: int8 or uint8 (X_SIGNED, W_SIGNED) stored in arrays of words.
#if INTEGER
#define Acc int
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) readonly buffer W { uint w[]; };
layout(binding = 2) buffer Y { int y[]; };
#define LOAD_X(i) (X_SIGNED != 0 ? pm_load_i8(x, i) : int(pm_load_u8(x, i)))
#define LOAD_W(i) (W_SIGNED != 0 ? pm_load_i8(w, i) : int(pm_load_u8(w, i)))
#define STORE_Y(i, v) y[i] = v
#define APPLY_EPILOGUE(v) (v)
#if X_ZERO
layout(binding = 4) readonly buffer XZero { int x_zero[]; };
#endif
#if W_ZERO
layout(binding = 5) readonly buffer WZero { int w_zero[]; };  // one zero point per output channel
#endif
#else
#define Acc float
layout(binding = 0) readonly buffer X { XFP x[]; };
layout(binding = 1) readonly buffer W { WFP w[]; };
layout(binding = 2) buffer Y { YFP y[]; };
#define LOAD_X(i) X_AT(i)
#define LOAD_W(i) W_AT(i)
#define STORE_Y(i, v) SET_Y(i, v)
#define APPLY_EPILOGUE(v) epilogue(v)
#endif
#if HAS_BIAS
layout(binding = 3) readonly buffer B { Acc b[]; };
#endif
layout(push_constant) uniform parameter {
  uint elements;
  uint channels_in, channels_out, groups;  // channels per group
  uint out_size[3];
  int in_size[3];
  uint x_stride[5], y_stride[5];
  uint x_offset, y_offset, w_offset;
} p;

void main() {
  const uint id = grid_invocation();
  if (id >= p.elements) return;
  const Position position = element_position(id, p.channels_out * p.groups, uvec3(p.out_size[0], p.out_size[1], p.out_size[2]));
  const uint group = position.c / p.channels_out, channel = position.c - group * p.channels_out;
  const uint taps = uint(KERNEL_D * KERNEL_H * KERNEL_W);
  const ivec3 size = ivec3(p.in_size[0], p.in_size[1], p.in_size[2]);
#if TRANSPOSED
  const uint first = p.w_offset + (group * p.channels_in * p.channels_out + channel) * taps, next = p.channels_out * taps;
#else
  const uint first = p.w_offset + position.c * p.channels_in * taps, next = taps;
#endif
  Acc sum = Acc(0), zero_x = Acc(0), zero_w = Acc(0);
#if X_ZERO
  zero_x = x_zero[0];
#endif
#if W_ZERO
  zero_w = w_zero[position.c];
#endif
  uint tap = 0u;
  for (int d = 0; d < KERNEL_D; ++d)
    for (int h = 0; h < KERNEL_H; ++h)
      for (int i = 0; i < KERNEL_W; ++i, ++tap) {
#if TRANSPOSED
        const ivec3 full = ivec3(position.at) + pads() - ivec3(d, h, i) * dilations(), at = full / steps();
        if (any(lessThan(full, ivec3(0))) || at * steps() != full || !is_inside(at, size)) continue;
#else
        const ivec3 at = ivec3(position.at) * steps() - pads() + ivec3(d, h, i) * dilations();
        if (!is_inside(at, size)) continue;
#endif
        uint from = p.x_offset + element_offset(position.n, group * p.channels_in, uvec3(at), p.x_stride), weight = first + tap;
        for (uint c = 0u; c < p.channels_in; ++c) {
          sum += (LOAD_X(from) - zero_x) * (LOAD_W(weight) - zero_w);
          from += p.x_stride[1];
          weight += next;
        }
      }
#if HAS_BIAS
  sum += b[position.c];
#endif
  STORE_Y(p.y_offset + element_offset(position.n, position.c, position.at, p.y_stride), APPLY_EPILOGUE(sum));
}
