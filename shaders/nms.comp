// NonMaxSuppression: walks boxes in the order of their scores and drops boxes whose IoU with a selected box exceeds the threshold.
//
// boxes: [images, count, 4]; scores: [rows, count], sorted; order: int64 [rows, count], the boxes by score. y[row, k]: 1 + the index of the
// k-th selected box, or 0. There is a row for each image and class.
// Workgroup = one row. For each candidate, 64 invocations compare it with all boxes selected so far. Long rows need several dispatches;
// num_selected[row] is the number of boxes selected so far.
//
// For all devices. Selected in cpp/operators/window/nms.cpp.
#version 450
layout(local_size_x = 64) in;
#include "include/grid.glsl"
#include "include/buffer_barrier.glsl"
#include "include/math.glsl"
#include "include/tensor.glsl"
layout(binding = 0) readonly buffer B { sfp boxes[]; };
layout(binding = 1) readonly buffer S { sfp scores[]; };
layout(binding = 2) readonly buffer O { uvec2 order[]; };
layout(binding = 3) coherent buffer Y { uint y[]; };
layout(binding = 4) buffer C { uint num_selected[]; };
layout(push_constant) uniform parameter {
  uint rows, classes, count, max_boxes;  // classes per image, boxes per image, max selected boxes per row
  uint first, end;
  uint has_score_threshold;
  float score_threshold, iou_threshold;  // scores must exceed `score_threshold`; IoU must not exceed `iou_threshold`
  uint boxes_offset, scores_offset, order_offset, y_offset;
} p;
shared uint suppressed;

// Returns the corners of a box.
vec4 load_box(uint image, uint i) {
  const uint at = p.boxes_offset + (image * p.count + i) * 4u;
  const vec4 b = vec4(pm_load(boxes, at), pm_load(boxes, at + 1u), pm_load(boxes, at + 2u), pm_load(boxes, at + 3u));
#if CENTER
  return vec4(b.xy - b.zw / 2.0, b.xy + b.zw / 2.0);
#else
  return vec4(min(b.xy, b.zw), max(b.xy, b.zw));
#endif
}

bool exceeds_iou(vec4 a, vec4 b) {
  const vec2 sides = min(a.zw, b.zw) - max(a.xy, b.xy), size_a = a.zw - a.xy, size_b = b.zw - b.xy;
  if (!(sides.x > 0.0 && sides.y > 0.0)) return false;
  precise float shared_area = sides.x * sides.y, area_a = size_a.x * size_a.y, area_b = size_b.x * size_b.y, union_area = area_a + area_b - shared_area;
  return area_a > 0.0 && area_b > 0.0 && union_area > 0.0 && pm_divide(shared_area, union_area) > p.iou_threshold;
}

void main() {
  const uint row = grid_group(), lane = gl_LocalInvocationID.x;
  if (row >= p.rows) return;
  const uint base = p.y_offset + row * p.max_boxes;
  if (p.first == 0u)
    for (uint k = lane; k < p.max_boxes; k += gl_WorkGroupSize.x) y[base + k] = 0u;
  uint found = p.first == 0u ? 0u : num_selected[row];
  buffer_barrier();
  for (uint i = p.first; i < p.end && found < p.max_boxes; ++i) {
    const float score = pm_load(scores, p.scores_offset + row * p.count + i);
    if (p.has_score_threshold != 0u && !(score > p.score_threshold)) continue;
    const uint candidate = order[p.order_offset + row * p.count + i].x;
    const vec4 corners = load_box(row / p.classes, candidate);
    if (lane == 0u) suppressed = 0u;
    barrier();
    for (uint k = lane; k < found; k += gl_WorkGroupSize.x)
      if (exceeds_iou(corners, load_box(row / p.classes, y[base + k] - 1u))) suppressed = 1u;
    barrier();  // wait until the candidate has been compared with all selected boxes
    if (suppressed == 0u) {
      if (lane == 0u) y[base + found] = candidate + 1u;
      ++found;
    }
    buffer_barrier();  // make the new box visible to the next comparisons
  }
  if (lane == 0u) num_selected[row] = found;
}
