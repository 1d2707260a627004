// im2col of a deformable convolution: samples x at each tap of each output pixel, displaced by an offset and multiplied by the mask.
//
// offset: [image, offset group, tap, y and x, pixel]. mask (MASK): [image, offset group, tap, pixel]. y: [image and channel, tap, pixel],
// dense.
// One invocation computes one element (or the elements of a word) by bilinear interpolation; samples outside the image are 0.
//
// For all devices. Selected in cpp/operators/window/image_regions.cpp; a GEMM with the weights follows.
#version 450
layout(push_constant) uniform parameter {
  uint elements, channels, rows, columns;
  uint groups, kernel_h, kernel_w, height, width;
  int stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  uint x_offset, offset_offset, mask_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
layout(binding = 2) readonly buffer O { sfp offset[]; };
#if MASK
layout(binding = 3) readonly buffer M { sfp mask[]; };
#endif

float load_pixel(uint image, int row, int column) {
  const bool inside = row >= 0 && row < int(p.rows) && column >= 0 && column < int(p.columns);
  return inside ? pm_load(x, image + uint(row) * p.columns + uint(column)) : 0.0;
}

float element(uint id) {
  const uint pixels = p.height * p.width, size = p.kernel_h * p.kernel_w;
  const uint pixel = id % pixels, k = id / pixels % size, plane = id / pixels / size;
  const uint group = plane / p.channels * p.groups + plane % p.channels / (p.channels / p.groups);
  const uint offset_index = p.offset_offset + (group * size + k) * 2u * pixels + pixel;
  const float row = float(int(pixel / p.width) * p.stride_y - p.pad_y + int(k / p.kernel_w) * p.dilation_y) + pm_load(offset, offset_index);
  const float column =
      float(int(pixel % p.width) * p.stride_x - p.pad_x + int(k % p.kernel_w) * p.dilation_x) + pm_load(offset, offset_index + pixels);
  if (!(row > -1.0 && row < float(p.rows) && column > -1.0 && column < float(p.columns))) return 0.0;
  const int top = int(pm_floor(row)), left = int(pm_floor(column));
  const float fy = row - float(top), fx = column - float(left);
  const uint image = p.x_offset + plane * p.rows * p.columns;
  const float upper = (1.0 - fx) * load_pixel(image, top, left) + fx * load_pixel(image, top, left + 1);
  const float lower = (1.0 - fx) * load_pixel(image, top + 1, left) + fx * load_pixel(image, top + 1, left + 1);
  const float value = (1.0 - fy) * upper + fy * lower;
#if MASK
  return value * pm_load(mask, p.mask_offset + (group * size + k) * pixels + pixel);
#else
  return value;
#endif
}
