// MaxRoiPool: the maximum of each of height x width cells of boxes [image, left, top, right, bottom], with corners rounded to elements; 0
// for an empty cell.
//
// x: [images, channels, rows, columns]; y: [boxes, channels, height, width]. An image index out of range counts as 0. A dispatch reads the
// image rows from first_row to end_row; a cell without any of these rows is -infinity, and the dispatches are combined by maximum.
// One invocation computes one element (or the elements of a word). For all devices; selected in cpp/operators/window/image_regions.cpp.
#version 450
layout(push_constant) uniform parameter {
  uint elements, images, channels, rows, columns;
  uint height, width;
  uint first_row, end_row;
  float scale;
  uint x_offset, rois_offset, y_offset;
} p;
#include "include/contiguous_float_output.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
layout(binding = 2) readonly buffer R { sfp rois[]; };

int round_corner(uint box, uint k) {
  const float at = pm_load(rois, p.rois_offset + box * 5u + k) * p.scale;
  const float whole = floor(abs(at));
  return int(sign(at) * (whole + (abs(at) - whole >= 0.5 ? 1.0 : 0.0)));
}

// Element range of a cell in integer arithmetic: floor(index * length / count) to ceil((index + 1) * length / count).
ivec2 cell_range(int first, int last, uint index, uint count, uint size) {
  const uint length = uint(max(last - first + 1, 1)), each = length / count, rest = length % count, next = index + 1u;
  const uint begin = index * each + index * rest / count, end = next * each + (next * rest + count - 1u) / count;
  return clamp(ivec2(begin, end) + first, ivec2(0), ivec2(size));
}

float element(uint id) {
  const uint plane = id / p.width / p.height, box = plane / p.channels;
  const ivec2 across = cell_range(round_corner(box, 1u), round_corner(box, 3u), id % p.width, p.width, p.columns);
  const ivec2 down = cell_range(round_corner(box, 2u), round_corner(box, 4u), id / p.width % p.height, p.height, p.rows);
  if (across.x >= across.y || down.x >= down.y) return 0.0;
  const float batch_item = pm_load(rois, p.rois_offset + box * 5u);
  const uint from = batch_item >= 0.0 && batch_item < float(p.images) ? uint(batch_item) : 0u;
  const uint image = p.x_offset + (from * p.channels + plane % p.channels) * p.rows * p.columns;
  float largest = -pm_infinity;
  const ivec2 rows = clamp(down, ivec2(p.first_row), ivec2(p.end_row));
  for (int row = rows.x; row < rows.y; ++row)
    for (int column = across.x; column < across.y; ++column) largest = max(largest, pm_load(x, image + uint(row) * p.columns + uint(column)));
  return largest;
}
