// Operator rows of sorting operators.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/host/host_node.h"
#include "operators/sort/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void shape_of_topk(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).elements() != 1) node.fail("k must be one number; given a tensor of shape " + to_string(node.input(1).shape));
  const int64_t k = node.host_integer(1);
  if (k < 0 || k > y[axis]) node.fail("k is " + std::to_string(k) + ", and the axis has " + std::to_string(y[axis]) + " elements");
  y[axis] = k;
  node.output(0, node.input(0).dtype, y);
  node.output(1, DType::int64, y);
}

}  // namespace

OperatorRows sort_operators() {
  return {{.name = "TopK",
           .skeleton = KernelKind::sort,
           .schema = {.inputs = {value("x", kAny), value("k", kInt64)},
                      .outputs = {value("values", kAny), value("indices", kInt64)},
                      .attributes = {integer("axis", -1), integer("largest", 1), integer("sorted", 1)},
                      .min_rank = 1},
           .shape = shape_of_topk,
           .lower = lower_topk,
           .host_inputs = input_bits(1),
           .split = split_all_but_axis,
           .evaluate = evaluate_topk}};
}

}  // namespace pumice
