// Running sums and products.
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_scan(ShapeContext& node) {
  if (node.has(1) && node.input(1).elements() != 1) node.fail("the axis must be one number; given " + to_string(node.input(1).shape));
  if (node.host(1)) checked_axis(node, node.host_integer(1), node.input(0).shape.size());
  shape_like_input(node);
}

}  // namespace

Rows scan_rows() {
  constexpr DTypeSet numbers = kFloats | set_of(DType::float64, DType::int32, DType::int64, DType::uint32, DType::uint64);
  Rows rows;
  for (const std::string_view name : {"CumSum", "CumProd"})
    rows.push_back(
        {name,
         Skeleton::scan,
         {{value("x", numbers), value("axis", kIndices)}, {value("y", numbers)}, {integer("exclusive", 0), integer("reverse", 0)}, 1},
         shape_of_scan,
         lower_scan,
         {},
         host_bits(1)});
  for (OperatorRow& row : rows) row.overflows = true;
  return rows;
}

}  // namespace pumice
