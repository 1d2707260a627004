// Depthwise convolution: y[n, c, i, j] = bias[c] + sum over (th, tw) of x[n, c, i step_h + th dilation_h + base_h, ...] w[c, th, tw], then
// the epilogue.
//
// x, y: any strides. w: [channels][KERNEL_H][KERNEL_W], as in ONNX. bias: float.
// An invocation computes 4 neighbouring pixels of a row for one channel, or with VEC4 for 4 contiguous channels. It loads each input row
// once into registers. Y_ROW_VEC4: the 4 pixels are one aligned vec4 of y.
//   for each th: load SPAN elements of the input row; for each tw: 4 multiply-adds
//
// For all devices. Selected in cpp/operators/conv_gemm/depthwise.cpp.
#version 450
#extension GL_EXT_control_flow_attributes : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/mixed_precision.glsl"
layout(local_size_x = LOCAL_SIZE) in;
layout(constant_id = 0) const int KERNEL_H = 3;
layout(constant_id = 1) const int KERNEL_W = 3;
layout(constant_id = 2) const int STEP_W = 1;
layout(constant_id = 3) const int DILATION_W = 1;
#if VEC4
#define Values vec4
layout(binding = 0) readonly buffer X { XFP4 x[]; };
#define LOAD_X(i) X4_AT((i) >> 2)
#else
#define Values float
layout(binding = 0) readonly buffer X { XFP x[]; };
#define LOAD_X(i) X_AT(i)
#endif
layout(binding = 1) readonly buffer W { WFP w[]; };
#if VEC4 || Y_ROW_VEC4
layout(binding = 2) writeonly buffer Y { YFP4 y[]; };
#else
layout(binding = 2) buffer Y { YFP y[]; };
#endif
#if HAS_BIAS
layout(binding = 3) readonly buffer B { float b[]; };
#endif
layout(push_constant) uniform parameter {
  uint images, channels;  // channels: divided by 4 with VEC4
  uint out_h, out_w, row_vec4s;
  int in_h, in_w;
  int step_h, dilation_h, base_h, base_w;
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
  uint y_stride_n, y_stride_h, y_stride_w, y_stride_c;
  uint x_offset, w_offset, y_offset;
} p;

const int SPAN = 3 * STEP_W + (KERNEL_W - 1) * DILATION_W + 1;  // number of input row elements that four outputs read

Values load_weight(uint channel, uint tap) {
  const uint taps = uint(KERNEL_H * KERNEL_W), at = p.w_offset + channel * taps + tap;
#if VEC4
  return vec4(W_AT(at), W_AT(at + taps), W_AT(at + 2u * taps), W_AT(at + 3u * taps));
#else
  return W_AT(at);
#endif
}

Values load_bias(uint channel) {
#if !HAS_BIAS
  return Values(0.0);
#elif VEC4
  return vec4(b[channel], b[channel + 1u], b[channel + 2u], b[channel + 3u]);
#else
  return b[channel];
#endif
}

void main() {
  uint rest = grid_invocation();
#if VEC4
  const uint channel = rest % p.channels * 4u; rest /= p.channels;
  const uint column = rest % p.row_vec4s * 4u; rest /= p.row_vec4s;
  const uint row = rest % p.out_h, image = rest / p.out_h;
#else
  const uint column = rest % p.row_vec4s * 4u; rest /= p.row_vec4s;
  const uint row = rest % p.out_h; rest /= p.out_h;
  const uint channel = rest % p.channels, image = rest / p.channels;
#endif
  if (image >= p.images) return;
  const uint from = p.x_offset + image * p.x_stride_n + channel * p.x_stride_c;
  const int first_w = int(column) * STEP_W + p.base_w;
  Values sums[4];
  [[unroll]] for (int j = 0; j < 4; ++j) sums[j] = load_bias(channel);
  for (int th = 0; th < KERNEL_H; ++th) {
    const int ih = int(row) * p.step_h + th * p.dilation_h + p.base_h;
    if (ih < 0 || ih >= p.in_h) continue;
    const uint from_row = from + uint(ih) * p.x_stride_h;
    Values row_x[SPAN];
    [[unroll]] for (int i = 0; i < SPAN; ++i) {
      const int iw = first_w + i;
      row_x[i] = LOAD_X(from_row + uint(clamp(iw, 0, p.in_w - 1)) * p.x_stride_w);
      if (iw < 0 || iw >= p.in_w) row_x[i] = Values(0.0);
    }
    [[unroll]] for (int tw = 0; tw < KERNEL_W; ++tw) {
      const Values weight = load_weight(channel, uint(th * KERNEL_W + tw));
      [[unroll]] for (int j = 0; j < 4; ++j) sums[j] = fma(row_x[j * STEP_W + tw * DILATION_W], weight, sums[j]);
    }
  }
  const uint to = p.y_offset + image * p.y_stride_n + channel * p.y_stride_c + row * p.y_stride_h + column * p.y_stride_w;
#if Y_ROW_VEC4
  SET_Y4(to >> 2, epilogue(vec4(sums[0], sums[1], sums[2], sums[3])));
#else
  [[unroll]] for (uint j = 0u; j < 4u; ++j) {
    if (column + j >= p.out_w) break;
#if VEC4
    SET_Y4((to + j * p.y_stride_w) >> 2, epilogue(sums[j]));
#else
    SET_Y(to + j * p.y_stride_w, epilogue(sums[j]));
#endif
  }
#endif
}
