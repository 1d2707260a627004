// Operator rows of running sums and products.
#include "operators/common/split_axes.h"
#include "operators/host/host_node.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_scan_shape(ShapeContext& node) {
  if (node.has(1) && node.input(1).elements() != 1) node.fail("the axis must be one number; given " + to_string(node.input(1).shape));
  if (node.host_tensor(1)) normalize_axis(node, node.get_host_integer(1), node.input(0).shape.size());
  infer_shape_like_input(node);
}

void append_scan_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  if (!node.host_tensor(1)) return;
  const int scan_axis = normalize_axis(node.host_tensor(1)->as_int64().at(0), node.input(kData).rank());
  append_axes_except(node, axes, [&](int axis) { return axis == scan_axis; });
}

}  // namespace

OperatorRows define_scan_operators() {
  constexpr DTypeSet numbers = kFloats | make_dtype_set(DType::float64, DType::int32, DType::int64, DType::uint32, DType::uint64);
  OperatorRows rows;
  for (const auto& [name, fold] : {std::pair("CumSum", &kSumFold), std::pair("CumProd", &kProductFold)})
    rows.push_back({.name = name,
                    .skeleton = KernelKind::scan,
                    .schema = {.inputs = {value_role("x", numbers), value_role("axis", kIndices)},
                               .outputs = {value_role("y", numbers)},
                               .attributes = {integer_attribute("exclusive", 0), integer_attribute("reverse", 0)},
                               .min_rank = 1},
                    .shape = infer_scan_shape,
                    .lower = lower_scan,
                    .host_inputs = make_input_mask(1),
                    .split = append_scan_split_axes,
                    .evaluate = evaluate_scan,
                    .precision = {.overflows = true, .mixed_precision = true},
                    .fold = fold});
  return rows;
}

}  // namespace pumice
