// Operator rows of running sums and products.
#include "operators/common/split_axes.h"
#include "operators/host/host_node.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void shape_of_scan(ShapeContext& node) {
  if (node.has(1) && node.input(1).elements() != 1) node.fail("the axis must be one number; given " + to_string(node.input(1).shape));
  if (node.host(1)) normalize_axis(node, node.host_integer(1), node.input(0).shape.size());
  shape_like_input(node);
}

void split_scan(const LowerContext& node, std::vector<SplitAxis>& axes) {
  if (!node.host(1)) return;
  const int scan_axis = normalize_axis(node.host(1)->as_int64().at(0), node.input(kData).rank());
  split_all_but(node, axes, [&](int axis) { return axis == scan_axis; });
}

}  // namespace

OperatorRows scan_operators() {
  constexpr DTypeSet numbers = kFloats | set_of(DType::float64, DType::int32, DType::int64, DType::uint32, DType::uint64);
  OperatorRows rows;
  for (const auto& [name, fold] : {std::pair("CumSum", &kSumFold), std::pair("CumProd", &kProductFold)})
    rows.push_back({.name = name,
                    .skeleton = KernelKind::scan,
                    .schema = {.inputs = {value("x", numbers), value("axis", kIndices)},
                               .outputs = {value("y", numbers)},
                               .attributes = {integer("exclusive", 0), integer("reverse", 0)},
                               .min_rank = 1},
                    .shape = shape_of_scan,
                    .lower = lower_scan,
                    .host_inputs = input_bits(1),
                    .split = split_scan,
                    .evaluate = evaluate_scan,
                    .overflows = true,
                    .mixed_precision = true,
                    .fold = fold});
  return rows;
}

}  // namespace pumice
