// Soft-NMS per class: selects the best box, and multiplies the scores of the remaining boxes by a factor that depends on their IoU with it.
// Factors for IoU >= `overlap`: METHOD 0 (hard): 0; 1 (linear): 1 - IoU. For any IoU: 2 (Gaussian): exp(-IoU^2 / sigma).
//
// images: int, the image of each row; rows of an image are contiguous. An image of n rows from row r has the slots num_classes * r ... of
// y, n per class. Slot k of a class finally holds 1 + the score index of its k-th box, or 0; until then the slots hold candidates. decayed:
// the scores of the slots.
// Workgroup = one row and class; only an image's first row does any work. A dispatch runs the rounds from `first` to `end`:
//   for each round: find the best score; swap it to its slot; lower the remaining scores; drop boxes whose scores fall below `least`
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
layout(binding = 2) readonly buffer I { int images[]; };
layout(binding = 3) coherent buffer Y { uint y[]; };
layout(binding = 4) coherent buffer L { uint decayed[]; };  // scores of the slots, as float bits
layout(binding = 5) writeonly buffer F { uint image_first[]; };  // first slot of the image, per slot
layout(binding = 6) writeonly buffer C { uint class_first[]; };  // first slot of the class, per slot
layout(binding = 7) buffer N { uint counts[]; };    // per workgroup: rows of the image; candidates and selected boxes
layout(binding = 8) coherent buffer H { uint holes[]; };
layout(push_constant) uniform parameter {
  uint rows, num_classes;       // num_classes: number of classes without the background
  uint rounds, first, end;
  float threshold, least;  // scores must exceed `threshold`; boxes whose scores fall below `least` are dropped
  float overlap, sigma;
  uint boxes_offset, scores_offset, images_offset, y_offset, decayed_offset, image_first_offset, class_first_offset;
} p;

#define LANES gl_WorkGroupSize.x
shared uint edge, dropped, flags[2];
shared float keys[64];
shared uint slots[64];
uint lane, base;

vec4 load_box(uint i) {
  const uint at = p.boxes_offset + i * 4u;
  return vec4(pm_load(boxes, at), pm_load(boxes, at + 1u), pm_load(boxes, at + 2u), pm_load(boxes, at + 3u));
}

// IoU; 0 if the boxes do not overlap.
float iou(vec4 a, vec4 b) {
  const vec2 sides = max(min(a.zw, b.zw) - max(a.xy, b.xy), vec2(0)), size_a = a.zw - a.xy, size_b = b.zw - b.xy;
  precise float shared_area = sides.x * sides.y;
  precise float union_area = size_a.x * size_a.y + size_b.x * size_b.y - shared_area;
  return shared_area > 0.0 && union_area > 0.0 ? pm_divide(shared_area, union_area) : 0.0;
}

float decay(float iou_value) {
#if METHOD == 2
  return exp(pm_divide(-iou_value * iou_value, p.sigma));
#elif METHOD == 1
  return iou_value < p.overlap ? 1.0 : 1.0 - iou_value;
#else
  return iou_value < p.overlap ? 1.0 : 0.0;
#endif
}

// Returns the first row after the image that starts at `row`.
uint end_of_image(uint row) {
  const int image = images[p.images_offset + row];
  for (uint from = row + 1u; from < p.rows; from += LANES) {
    if (lane == 0u) edge = p.rows;
    barrier();
    const uint at = from + lane;
    if (at < p.rows && images[p.images_offset + at] != image) atomicMin(edge, at);
    barrier();
    const uint found = edge;
    barrier();  // wait until all lanes have read `edge`
    if (found < p.rows) return found;
  }
  return p.rows;
}

// Returns in how many earlier lanes `is_set` is true; `count` receives the number of all such lanes.
uint rank_in_group(bool is_set, out uint count) {
  if (lane < 2u) flags[lane] = 0u;
  barrier();
  const uint bit = 1u << (lane & 31u);
  if (is_set) atomicOr(flags[lane >> 5], bit);
  barrier();
  const uint low = flags[0], high = flags[1];
  barrier();  // wait until all lanes have read the flags
  count = uint(bitCount(low) + bitCount(high));
  return uint(lane < 32u ? bitCount(low & bit - 1u) : bitCount(low) + bitCount(high & bit - 1u));
}

// Collects the candidates in order: the rows whose scores exceed the threshold.
uint collect_candidates(uint row, uint rows, uint label) {
  uint end = 0u;
  for (uint from = 0u; from < rows; from += LANES) {
    const uint i = (row + from + lane) * (p.num_classes + 1u) + label;
    const float score = from + lane < rows ? pm_load(scores, p.scores_offset + i) : 0.0;
    const bool is_candidate = from + lane < rows && score > p.threshold;
    uint count;
    const uint at = base + end + rank_in_group(is_candidate, count);
    if (is_candidate) y[p.y_offset + at] = i + 1u, decayed[p.decayed_offset + at] = floatBitsToUint(score);
    end += count;
  }
  return end;
}

// Returns the slot of the largest score in [first, end); ties go to the first, and NaN counts as -infinity.
uint find_best(uint first, uint end) {
  const float none = uintBitsToFloat(0xff800000u);
  float key = none;
  uint slot = 0xffffffffu;
  for (uint at = first + lane; at < end; at += LANES) {
    const float score = uintBitsToFloat(decayed[p.decayed_offset + base + at]);
    if (slot == 0xffffffffu || score > key) key = pm_isnan(score) ? none : score, slot = at;
  }
  keys[lane] = key;
  slots[lane] = slot;
  for (uint half_ = LANES / 2u; half_ > 0u; half_ /= 2u) {
    barrier();
    if (lane >= half_) continue;
    const float other = keys[lane + half_];
    if (other > keys[lane] || (other == keys[lane] && slots[lane + half_] < slots[lane]))
      keys[lane] = other, slots[lane] = slots[lane + half_];
  }
  barrier();
  slot = slots[0];
  barrier();  // wait until all lanes have read the slot
  return slot;
}

void swap_slots(uint a, uint b) {
  const uint box_a = y[p.y_offset + a], score_a = decayed[p.decayed_offset + a];
  y[p.y_offset + a] = y[p.y_offset + b];
  decayed[p.decayed_offset + a] = decayed[p.decayed_offset + b];
  y[p.y_offset + b] = box_a;
  decayed[p.decayed_offset + b] = score_a;
}

// Lowers the scores of the boxes after a selected box, and empties the slots of dropped boxes. Returns the number of dropped boxes.
uint decay_scores(uint chosen, uint end) {
  const vec4 corners = load_box(y[p.y_offset + base + chosen] - 1u);
  if (lane == 0u) dropped = 0u;
  barrier();
  for (uint at = base + chosen + 1u + lane; at < base + end; at += LANES) {
    const float score = uintBitsToFloat(decayed[p.decayed_offset + at]) * decay(iou(corners, load_box(y[p.y_offset + at] - 1u)));
    decayed[p.decayed_offset + at] = floatBitsToUint(score);
    if (score < p.least) y[p.y_offset + at] = 0u, atomicAdd(dropped, 1u);
  }
  buffer_barrier();
  const uint count = dropped;
  barrier();  // wait until all lanes have read the count
  return count;
}

// Compacts the slots in the order of a sequential loop that replaces each dropped candidate with the last one and then checks that one:
// empty slots, in ascending order, are filled from the slots past the new end, in descending order.
void compact_slots(uint first, uint end, uint new_end) {
  uint found = 0u, filled = 0u, count;
  for (uint from = first; from < new_end; from += LANES) {
    const uint at = from + lane;
    const bool is_hole = at < new_end && y[p.y_offset + base + at] == 0u;
    const uint slot = found + rank_in_group(is_hole, count);
    if (is_hole) holes[base + slot] = at;
    found += count;
  }
  buffer_barrier();
  for (uint from = 0u; from < end - new_end && filled < found; from += LANES) {
    const uint at = base + end - 1u - (from + lane);
    const bool is_moved = from + lane < end - new_end && y[p.y_offset + at] != 0u;
    const uint slot = filled + rank_in_group(is_moved, count);
    if (is_moved) {
      const uint to = base + holes[base + slot];
      y[p.y_offset + to] = y[p.y_offset + at];
      decayed[p.decayed_offset + to] = decayed[p.decayed_offset + at];
    }
    filled += count;
  }
  buffer_barrier();
}

void main() {
  const uint group = grid_group(), row = group / p.num_classes, label = group % p.num_classes;
  lane = gl_LocalInvocationID.x;
  if (row >= p.rows || (row > 0u && images[p.images_offset + row - 1u] == images[p.images_offset + row])) return;
  uint rows, end;
  if (p.first == 0u) {
    rows = end_of_image(row) - row;
    base = p.num_classes * row + label * rows;
    end = collect_candidates(row, rows, label + 1u);
    for (uint at = base + lane; at < base + rows; at += LANES) {
      image_first[p.image_first_offset + at] = p.num_classes * row;
      class_first[p.class_first_offset + at] = base;
    }
  } else {
    rows = counts[2u * group];
    end = counts[2u * group + 1u];
    base = p.num_classes * row + label * rows;
  }
  buffer_barrier();
  for (uint round = p.first; round < p.end && round < end; ++round) {
    const uint slot = find_best(round, end);
    if (lane == 0u && slot != round) swap_slots(base + round, base + slot);
    buffer_barrier();
    const uint num_dropped = decay_scores(round, end);
    if (num_dropped > 0u) compact_slots(round + 1u, end, end - num_dropped);
    end -= num_dropped;
  }
  if (lane == 0u) counts[2u * group] = rows, counts[2u * group + 1u] = end;
  if (p.end != p.rounds) return;
  for (uint at = base + min(end, p.rounds) + lane; at < base + rows; at += LANES) {
    y[p.y_offset + at] = 0u;
    decayed[p.decayed_offset + at] = 0u;
  }
}
