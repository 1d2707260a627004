// RoiAlign: for each of height x width cells of a box, the mean (MEAN) or the maximum of bilinear samples.
//
// x: [images, channels, rows, columns]; rois: [boxes, 4]; y: [boxes, channels, height, width]. HALF_PIXEL: pixel centers are at 1/2, else
// at 0 and boxes have a size of at least 1. samples_down, samples_across: number of samples per axis of a cell; 0 means the cell's length,
// rounded up. An image index out of range counts as 0.
// One invocation computes one element (or the elements of a word). A dispatch processes max_rows rows of samples from first_row, to keep
// the loops short.
//
// For all devices. Selected in cpp/operators/window/image_regions.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, images, channels, rows, columns;
  uint height, width, samples_down, samples_across;
  uint first_row, max_rows;
  float scale;
  uint x_offset, rois_offset, batch_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
layout(binding = 2) readonly buffer R { sfp rois[]; };
layout(binding = 3) readonly buffer B { BATCH batch[]; };

// The two neighbours on an axis, and the weight of the second.
float interpolate_axis(float at, uint size, out uint low, out uint high) {
  at = max(at, 0.0);
  low = min(uint(at), size - 1u);
  high = min(low + 1u, size - 1u);
  return low == high ? 0.0 : at - float(low);
}

// Range of the samples on an axis that may be inside `size` elements, with a small margin.
uvec2 sample_range(float first, float spacing, uint count, uint size) {
  if (CLAMP != 0 || !(spacing > 0.0)) return uvec2(0u, count);
  const float max_count = float(count), begin = (-1.0 - first) / spacing - 2.0, end = (float(size) - first) / spacing + 3.0;
  return uvec2(clamp(floor(begin), 0.0, max_count), clamp(ceil(end), 0.0, max_count));
}

float element(uint id) {
  const uint column = id % p.width, row = id / p.width % p.height, plane = id / p.width / p.height;
  const uint channel = plane % p.channels, box = plane / p.channels;
  const float shift = HALF_PIXEL != 0 ? 0.5 : 0.0;
  precise vec4 corners;
  for (uint k = 0u; k < 4u; ++k) corners[k] = pm_load(rois, p.rois_offset + box * 4u + k) * p.scale - shift;
  vec2 size = corners.zw - corners.xy;
#if !HALF_PIXEL
  size = max(size, vec2(1.0));
#endif
  const vec2 cell = vec2(pm_divide(size.x, float(p.width)), pm_divide(size.y, float(p.height)));
  const uvec2 default_count = uvec2(max(ceil(cell), vec2(0.0))), declared_count = uvec2(p.samples_across, p.samples_down);
  const uvec2 count = uvec2(declared_count.x > 0u ? declared_count.x : default_count.x, declared_count.y > 0u ? declared_count.y : default_count.y);
  const uint batch_item = INDEX(batch[p.batch_offset + box]), from = batch_item < p.images ? batch_item : 0u;
  const uint image = p.x_offset + (from * p.channels + channel) * p.rows * p.columns;
  const vec2 origin = corners.xy + vec2(column, row) * cell, spacing = cell / vec2(max(count, uvec2(1u)));
  const uvec2 across = sample_range(origin.x, spacing.x, count.x, p.columns), down = sample_range(origin.y, spacing.y, count.y, p.rows);
  const uint begin = min(down.x + p.first_row, down.y), end = min(begin + p.max_rows, down.y);
  // Samples outside the image count as 0.
  const bool all_inside = across == uvec2(0u, count.x) && down == uvec2(0u, count.y);
  float result = MEAN != 0 || !all_inside ? 0.0 : -pm_infinity;
  if (begin == end && all_inside && count.x * count.y == 0u) result = 0.0;
  for (uint j = begin; j < end; ++j)
  for (uint i = across.x; i < across.y; ++i) {
    const vec2 at = origin + (vec2(i, j) + 0.5) * cell / vec2(count);
    vec4 weighted = vec4(0.0);
    if (CLAMP != 0 || at.y >= -1.0 && at.y <= float(p.rows) && at.x >= -1.0 && at.x <= float(p.columns)) {
      uint left, right, top, bottom;
      const float fx = interpolate_axis(at.x, p.columns, left, right), fy = interpolate_axis(at.y, p.rows, top, bottom);
      weighted = vec4(1.0 - fy, 1.0 - fy, fy, fy) * vec4(1.0 - fx, fx, 1.0 - fx, fx);
      if (LEVELS > 0.0) weighted = floor(weighted * LEVELS + 0.5);
      weighted *= vec4(pm_load(x, image + top * p.columns + left), pm_load(x, image + top * p.columns + right),
                     pm_load(x, image + bottom * p.columns + left), pm_load(x, image + bottom * p.columns + right));
    }
#if MEAN
    result += weighted.x + weighted.y + weighted.z + weighted.w;
#else
    const float largest = max(max(weighted.x, weighted.y), max(weighted.z, weighted.w));
    result = max(result, largest);
#endif
  }
#if MEAN
  result /= max(float(count.x) * float(count.y), 1.0) * (LEVELS > 0.0 ? LEVELS : 1.0);
#endif
  return result;
}
