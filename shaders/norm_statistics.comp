// Mean and squared deviation of each channel over a stretch of pixels: one stretch an invocation, numbers shifted by the stretch's
// first, so that large means lose nothing. The stretches are put together by norm_combine (Chan, Golub, LeVeque 1983).
#version 450
#include "include/tensor.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { vec2 y[]; };  // [images][stretches][channels]: mean, sum of squared deviations
layout(push_constant) uniform parameter {
  uint images, channels, pixels;
  uint stretch, stretches;  // pixels a stretch, stretches an image
  uint width;               // pixel = row * width + column
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
  uint x_offset;
} p;
void main() {
  uint rest = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (rest >= p.images * p.stretches * p.channels) return;
  const uint id = rest;
  const uint channel = rest % p.channels; rest /= p.channels;
  const uint begin = rest % p.stretches * p.stretch, image = rest / p.stretches;
  const uint end = min(begin + p.stretch, p.pixels);
  const uint base = p.x_offset + image * p.x_stride_n + channel * p.x_stride_c;
  uint row = begin / p.width, column = begin - row * p.width;
  const float shift = pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w);
  float sum = 0.0, squares = 0.0;
  for (uint pixel = begin; pixel < end; ++pixel) {
    const float v = pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w) - shift;
    sum += v;
    squares += v * v;
    if (++column == p.width) { column = 0u; ++row; }
  }
  const float count = float(end - begin), mean = sum / count;
  y[id] = vec2(mean + shift, max(squares - sum * mean, 0.0));
}
