// Reductions over axes, which are an attribute or input 1.
#include "operators/row/families.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

std::vector<int64_t> given_axes(const ShapeContext& node) {
  if (!node.has(1)) return node.attributes().integers("axes");
  if (node.attributes().has("axes")) node.fail("axes are given as an attribute and as an input");
  return node.host_integers(1);
}

void shape_of_reduce(ShapeContext& node) {
  const TensorDesc& x = node.input(0);
  const auto axes = checked_axes(node, given_axes(node), x.shape.size());
  const bool all = axes.empty() && node.attributes().integer("noop_with_empty_axes", 0) == 0;
  const bool keep = node.attributes().integer("keepdims", 1) != 0;
  Shape y;
  for (size_t axis = 0; axis < x.shape.size(); ++axis) {
    const bool reduced = all || std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (!reduced || keep) y.push_back(reduced ? 1 : x.shape[axis]);
  }
  node.output(0, x.dtype, y);
}

void shape_of_arg(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = y.empty() ? 0 : checked_axis(node, node.attributes().integer("axis", 0), y.size());
  const int64_t size = y.empty() ? 1 : y[axis];
  if (!y.empty() && node.attributes().integer("keepdims", 1) != 0)
    y[axis] = 1;
  else if (!y.empty())
    y.erase(y.begin() + static_cast<std::ptrdiff_t>(axis));
  if (size == 0 && element_count(y) > 0)
    node.fail("the best of no elements: axis " + std::to_string(axis) + " of " + to_string(node.input(0).shape));
  node.output(0, DType::int64, y);
}

}  // namespace

Rows reduce_rows() {
  constexpr DTypeSet reals = kFloats | set_of(DType::float64), with_integers = reals | kIndices | set_of(DType::uint32, DType::uint64),
                     with_bytes = with_integers | kBool | set_of(DType::int8, DType::uint8);
  const std::vector<AttributeSchema> attributes{optional("axes", AttributeKind::integers), integer("keepdims", 1),
                                                integer("noop_with_empty_axes", 0)};
  Rows rows;
  for (const auto& [name, dtypes] : std::initializer_list<std::pair<std::string_view, DTypeSet>>{{"ReduceSum", with_integers},
                                                                                                 {"ReduceMean", with_integers},
                                                                                                 {"ReduceMax", with_bytes},
                                                                                                 {"ReduceMin", with_bytes},
                                                                                                 {"ReduceProd", with_integers},
                                                                                                 {"ReduceL1", with_integers},
                                                                                                 {"ReduceL2", reals},
                                                                                                 {"ReduceSumSquare", with_integers},
                                                                                                 {"ReduceLogSum", reals},
                                                                                                 {"ReduceLogSumExp", reals}})
    rows.push_back({name,
                    Skeleton::reduce,
                    {{value("x", dtypes), optional_value("axes", kInt64)}, {value("y", dtypes)}, attributes},
                    shape_of_reduce,
                    lower_reduce,
                    {},
                    host_bits(1)});
  for (const std::string_view name : {"ArgMax", "ArgMin"})
    rows.push_back({name,
                    Skeleton::reduce,
                    {{value("x", kNumbers | set_of(DType::float64))},
                     {value("y", kInt64)},
                     {integer("axis", 0), integer("keepdims", 1), integer("select_last_index", 0)}},
                    shape_of_arg,
                    lower_arg});
  for (OperatorRow& row : rows)
    row.overflows = row.name == "ReduceSum" || row.name == "ReduceProd" || row.name == "ReduceL1" || row.name == "ReduceL2" ||
                    row.name == "ReduceSumSquare";
  return rows;
}

}  // namespace pumice
