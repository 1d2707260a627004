// Operator rows of sorting operators.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/host/host_node.h"
#include "operators/sort/lowerings.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_topk_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).elements() != 1) node.fail("k must be one number; given a tensor of shape " + to_string(node.input(1).shape));
  const int64_t k = node.get_host_integer(1);
  if (k < 0 || k > y[axis]) node.fail("k is " + std::to_string(k) + ", and the axis has " + std::to_string(y[axis]) + " elements");
  y[axis] = k;
  node.output(0, node.input(0).dtype, y);
  node.output(1, DType::int64, y);
}

}  // namespace

OperatorRows define_sort_operators() {
  return {{.name = "TopK",
           .skeleton = KernelKind::sort,
           .schema = {.inputs = {value_role("x", kAny), value_role("k", kInt64)},
                      .outputs = {value_role("values", kAny), value_role("indices", kInt64)},
                      .attributes = {integer_attribute("axis", -1), integer_attribute("largest", 1), integer_attribute("sorted", 1)},
                      .min_rank = 1},
           .shape = infer_topk_shape,
           .lower = lower_topk,
           .host_inputs = make_input_mask(1),
           .split = append_axes_except_axis_attribute,
           .evaluate = evaluate_topk}};
}

}  // namespace pumice
