// Mean and sum of squared deviations of each channel over a chunk of pixels; norm_combine merges the chunks.
//
// Values are shifted by the mean of a few of them, so that neither large means nor outliers cost precision. y: vec2
// [images][chunks][channels].
// PLANES: dense planes of whole vec4s, one workgroup per chunk. Otherwise one invocation per chunk, any strides, in blocks of 16 pixels.
//
// For all devices. Selected in cpp/operators/normalization/normalization.cpp.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "include/grid.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
#if PLANES
#define GROUP_THREADS WORKGROUP
layout(local_size_x = GROUP_THREADS) in;
#include "include/thread_group.glsl"
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
#else
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { sfp x[]; };
#endif
layout(binding = 1) writeonly buffer Y { vec2 y[]; };  // [images][chunks][channels]: mean, sum of squared deviations
layout(push_constant) uniform parameter {
  uint images, channels, pixels;
  uint chunk_size, chunks;  // pixels per chunk, chunks per image
#if !PLANES
  uint width;               // pixel = row * width + column
  uint x_stride_n, x_stride_h, x_stride_w, x_stride_c;
#endif
  uint x_offset;
} p;

#if PLANES
shared vec2 reduce_buffer[GROUP_THREADS + 16];
PM_DEFINE_GROUP_REDUCE(reduce_group, vec2, reduce_buffer, pm_sum)
#endif

void main() {
  uint rest = grid_group();
#if !PLANES
  rest = rest * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
#endif
  if (rest >= p.images * p.chunks * p.channels) return;
  const uint id = rest;
  const uint channel = rest % p.channels; rest /= p.channels;
  const uint begin = rest % p.chunks * p.chunk_size, image = rest / p.chunks;
  const uint end = min(begin + p.chunk_size, p.pixels);
#if PLANES
  const float count = float(end - begin);
  const uint base = p.x_offset / 4u + (image * p.channels + channel) * (p.pixels / 4u);
  // Shift by the mean of each invocation's first vec4, so that a single outlier moves the shift only a little.
  const uint num_vec4 = (end - begin) / 4u;
  const float corner = pm_load_vec4(x, base + begin / 4u).x;
  vec2 sums = vec2(0.0);
  if (gl_LocalInvocationID.x < num_vec4) {
    precise vec4 v = pm_load_vec4(x, base + begin / 4u + gl_LocalInvocationID.x) - corner;
    sums.x = (v.x + v.y) + (v.z + v.w);
  }
  const float shift = corner + pm_divide(reduce_group(sums).x, float(min(num_vec4, uint(GROUP_THREADS)) * 4u));
  sums = vec2(0.0);
  for (uint vec4_index = begin / 4u + gl_LocalInvocationID.x; vec4_index < end / 4u; vec4_index += GROUP_THREADS) {
    precise vec4 v = pm_load_vec4(x, base + vec4_index) - shift;
    sums += vec2((v.x + v.y) + (v.z + v.w), dot(v, v));
  }
  sums = reduce_group(sums);
  // If the squares overflow, so may the sum, and an infinite mean would make all outputs NaN.
  const float mean = pm_isinf(sums.y) ? 0.0 : pm_divide(sums.x, count);
  if (gl_LocalInvocationID.x == 0u) y[id] = vec2(mean + shift, pm_centred_squares(sums.y, sums.x * mean));
#else
  const uint base = p.x_offset + image * p.x_stride_n + channel * p.x_stride_c;
  uint row = begin / p.width, column = begin - row * p.width;
  // Shift a block of 16 pixels by the mean of the blocks before it, the first block by its own mean.
  const float corner = pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w);
  float mean = 0.0, deviation = 0.0;  // mean and squared deviations of the pixels so far, relative to `corner`
  const uint first_end = min(begin + 16u, end);
  uint first_row = row, first_column = column;
  for (uint pixel = begin; pixel < first_end; ++pixel) {
    mean += pm_load(x, base + first_row * p.x_stride_h + first_column * p.x_stride_w) - corner;
    if (++first_column == p.width) { first_column = 0u; ++first_row; }
  }
  mean = pm_divide(mean, float(first_end - begin));
  for (uint block = begin; block < end; block += 16u) {
    const uint block_end = min(block + 16u, end);
    float sum = 0.0, squares = 0.0;
    for (uint pixel = block; pixel < block_end; ++pixel) {
      precise float v = (pm_load(x, base + row * p.x_stride_h + column * p.x_stride_w) - corner) - mean;
      sum += v;
      squares += v * v;
      if (++column == p.width) { column = 0u; ++row; }
    }
    const float block_mean = pm_divide(sum, float(block_end - begin));
    mean += block_mean;
    deviation += pm_centred_squares(squares, sum * block_mean);
  }
  y[id] = vec2(mean + corner, deviation);
#endif
}
