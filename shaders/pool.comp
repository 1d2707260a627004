// 2D pooling. MODE 0: maximum (NaN propagates), 1: average, 2: sum; then the epilogue.
//
// x, y: any strides. An invocation computes one output element, or VEC4: four neighbouring channels. Invocations are numbered with y's
// dense axis fastest.
// For all devices. Selected in cpp/operators/window/pooling.cpp.
#version 450
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/epilogue.glsl"
#include "include/tensor.glsl"
#include "include/window_range.glsl"
layout(local_size_x = 64) in;
#if VEC4
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) writeonly buffer Y { sfpvec4 y[]; };
#define VALUE vec4
#define LOAD(i) pm_load_vec4(x, (i) >> 2)
#else
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) buffer Y { sfp y[]; };
#define VALUE float
#define LOAD(i) pm_load(x, i)
#endif
layout(push_constant) uniform parameter {
  uint elements;               // number of output elements, or of vec4s with VEC4
  uint channels;               // number of channels, or of vec4s of channels with VEC4
  uint out_h, out_w;
  int in_h, in_w;
  uint window_h, window_w;
  int step_h, step_w, dilation_h, dilation_w, pad_h, pad_w;
  int padded_h, padded_w;      // input size with padding at both ends; bounds the divisor of averages that count padding
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
  uint y_stride_n, y_stride_h, y_stride_w, y_stride_c;
  uint channels_fastest;
  uint count_padding;
  uint x_offset, y_offset;
} p;

VALUE max_or_nan(VALUE a, VALUE b) {
#if VEC4
  return vec4(pm_max(a.x, b.x), pm_max(a.y, b.y), pm_max(a.z, b.z), pm_max(a.w, b.w));
#else
  return pm_max(a, b);
#endif
}

void main() {
  uint rest = grid_invocation();
  if (rest >= p.elements) return;
  uint c, oh, ow;
  if (p.channels_fastest != 0u) {
    c = rest % p.channels; rest /= p.channels;
    ow = rest % p.out_w; rest /= p.out_w;
    oh = rest % p.out_h; rest /= p.out_h;
  } else {
    ow = rest % p.out_w; rest /= p.out_w;
    oh = rest % p.out_h; rest /= p.out_h;
    c = rest % p.channels; rest /= p.channels;
  }
#if VEC4
  c *= 4u;
#endif
  const int begin_h = int(oh) * p.step_h - p.pad_h, begin_w = int(ow) * p.step_w - p.pad_w;
  const uint base = p.x_offset + rest * p.x_stride_n + c * p.x_stride_c;
  const ivec2 rows = window_range(begin_h, p.dilation_h, p.in_h, int(p.window_h)), columns = window_range(begin_w, p.dilation_w, p.in_w, int(p.window_w));
  VALUE sum = VALUE(MODE == 0 ? uintBitsToFloat(0xff800000u) : 0.0);
  for (int kh = rows.x; kh < rows.y; ++kh) {
    const uint row = base + uint(begin_h + kh * p.dilation_h) * p.x_stride_h;
    for (int kw = columns.x; kw < columns.y; ++kw) {
      const VALUE v = LOAD(row + uint(begin_w + kw * p.dilation_w) * p.x_stride_w);
#if MODE == 0
      sum = max_or_nan(sum, v);
#else
      sum += v;
#endif
    }
  }
#if MODE == 1
  const ivec2 padded_rows = window_range(begin_h + p.pad_h, p.dilation_h, p.padded_h, int(p.window_h));
  const ivec2 padded_columns = window_range(begin_w + p.pad_w, p.dilation_w, p.padded_w, int(p.window_w));
  // Computed in floats, since a window may be far larger than its input.
  const float inside = float(rows.y - rows.x) * float(columns.y - columns.x);
  const float counted = float(padded_rows.y - padded_rows.x) * float(padded_columns.y - padded_columns.x);
  sum /= max(p.count_padding != 0u ? counted : inside, 1.0);
#endif
  const uint at = p.y_offset + rest * p.y_stride_n + oh * p.y_stride_h + ow * p.y_stride_w + c * p.y_stride_c;
#if VEC4
  pm_store_vec4(y, at >> 2, epilogue(sum));
#else
  pm_store(y, at, epilogue(sum));
#endif
}
