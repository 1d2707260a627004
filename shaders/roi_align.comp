// Parts of images seen through a grid of boxes: the mean of samples between four neighbours (MEAN), or the largest of all their weighted
// neighbours, in each of height x width cells of a box. HALF_PIXEL: the center of the first element is at 1/2, else at 0, and boxes have
// at least size 1. samples: on either axis of a cell; 0: as many as the cell is long. A box of an image that is not there is one of the
// first.
#version 450
layout(push_constant) uniform parameter {
  uint elements, images, channels, rows, columns;
  uint height, width, samples;
  float scale;
  uint x_offset, rois_offset, batch_offset, y_offset;
} p;
#include "include/each_float.glsl"
layout(binding = 1) readonly buffer X { sfp x[]; };
layout(binding = 2) readonly buffer R { sfp rois[]; };
layout(binding = 3) readonly buffer B { BATCH batch[]; };

// The two neighbours on an axis and the weight of the second.
float between(float at, uint size, out uint low, out uint high) {
  at = max(at, 0.0);
  low = min(uint(at), size - 1u);
  high = min(low + 1u, size - 1u);
  return low == high ? 0.0 : at - float(low);
}

float element(uint id) {
  const uint column = id % p.width, row = id / p.width % p.height, plane = id / p.width / p.height;
  const uint channel = plane % p.channels, box = plane / p.channels;
  const float shift = HALF_PIXEL != 0 ? 0.5 : 0.0;
  vec4 corners;
  for (uint k = 0u; k < 4u; ++k) corners[k] = pm_load(rois, p.rois_offset + box * 4u + k) * p.scale - shift;
  vec2 size = corners.zw - corners.xy;
#if !HALF_PIXEL
  size = max(size, vec2(1.0));
#endif
  const vec2 cell = size / vec2(p.width, p.height);
  const uvec2 count = p.samples > 0u ? uvec2(p.samples) : uvec2(max(ceil(cell), vec2(0.0)));
  const uint given = INDEX(batch[p.batch_offset + box]), from = given < p.images ? given : 0u;
  const uint image = p.x_offset + (from * p.channels + channel) * p.rows * p.columns;
  float result = 0.0;
  for (uint k = 0u; k < count.x * count.y; ++k) {
    const vec2 at = corners.xy + vec2(column, row) * cell + (vec2(k % count.x, k / count.x) + 0.5) * cell / vec2(count);
    vec4 corner = vec4(0.0);
    if (at.y >= -1.0 && at.y <= float(p.rows) && at.x >= -1.0 && at.x <= float(p.columns)) {
      uint left, right, top, bottom;
      const float fx = between(at.x, p.columns, left, right), fy = between(at.y, p.rows, top, bottom);
      corner = vec4(1.0 - fy, 1.0 - fy, fy, fy) * vec4(1.0 - fx, fx, 1.0 - fx, fx);
      corner *= vec4(pm_load(x, image + top * p.columns + left), pm_load(x, image + top * p.columns + right),
                     pm_load(x, image + bottom * p.columns + left), pm_load(x, image + bottom * p.columns + right));
    }
#if MEAN
    result += corner.x + corner.y + corner.z + corner.w;
#else
    const float most = max(max(corner.x, corner.y), max(corner.z, corner.w));
    result = k == 0u ? most : max(result, most);
#endif
  }
#if MEAN
  result /= float(max(count.x * count.y, 1u));
#endif
  return result;
}
