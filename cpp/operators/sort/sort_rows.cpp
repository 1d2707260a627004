// Operators that order elements.
#include <algorithm>

#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_topk(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = checked_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).elements() != 1) node.fail("k must be one number; given a tensor of shape " + to_string(node.input(1).shape));
  const int64_t k = node.host_integer(1);
  if (k < 0 || k > y[axis]) node.fail("the first " + std::to_string(k) + " of an axis of " + std::to_string(y[axis]));
  y[axis] = k;
  node.output(0, node.input(0).dtype, y);
  node.output(1, DType::int64, y);
}

// Boxes [images, count, 4], their scores [images, classes, count] from the best on, and where each of these is among the boxes.
void shape_of_select_boxes(ShapeContext& node) {
  const Shape &boxes = node.input(0).shape, &scores = node.input(1).shape;
  if (scores.size() != 3 || boxes[2] != 4 || boxes[0] != scores[0] || boxes[1] != scores[2])
    node.fail("scores of shape " + to_string(scores) + " for boxes of shape " + to_string(boxes) +
              "; [N, classes, M] for [N, M, 4] expected");
  if (node.input(2).shape != scores) node.fail("an order of shape " + to_string(node.input(2).shape) + " for " + to_string(scores));
  for (const size_t i : {3, 4, 5})
    if (node.has(i) && node.input(i).elements() != 1)
      node.fail("input " + std::to_string(i) + " must be one number; given a tensor of shape " + to_string(node.input(i).shape));
  const int64_t most = node.has(3) ? node.host_integer(3) : 0;
  node.output(0, DType::int32, {scores[0], scores[1], std::clamp<int64_t>(most, 0, scores[2])});
}

}  // namespace

Rows sort_rows() {
  return {{"TopK",
           Skeleton::sort,
           {{value("x", kAny), value("k", kInt64)},
            {value("values", kAny), value("indices", kInt64)},
            {integer("axis", -1), integer("largest", 1), integer("sorted", 1)},
            1},
           shape_of_topk,
           lower_topk,
           {},
           host_bits(1)},
          {"pumice::SelectBoxes",
           Skeleton::scan,
           {{value("boxes", kFloats, 'T'), value("scores", kFloats, 'T'), value("order", kInt64), optional_value("most", kInt64),
             optional_value("overlap", kFloats), optional_value("least", kFloats)},
            {value("chosen", kInt32)},
            {integer("center_point_box", 0)},
            3,
            3},
           shape_of_select_boxes,
           lower_select_boxes,
           {},
           host_bits(3, 4, 5)}};
}

}  // namespace pumice
