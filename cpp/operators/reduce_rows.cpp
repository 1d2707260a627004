// Reductions over axes, which are an attribute or input 1.
#include "operators/families.h"
#include "operators/row_parts.h"

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

}  // namespace

Rows reduce_rows() {
  constexpr DTypeSet with_integers = kFloats | kIndices | set_of(DType::uint32, DType::uint64),
                     with_bytes = with_integers | set_of(DType::int8, DType::uint8);
  const std::vector<AttributeSchema> attributes{optional("axes", AttributeKind::integers), integer("keepdims", 1),
                                                integer("noop_with_empty_axes", 0)};
  Rows rows;
  for (const auto& [name, dtypes] : std::initializer_list<std::pair<std::string_view, DTypeSet>>{{"ReduceSum", with_integers},
                                                                                                 {"ReduceMean", with_integers},
                                                                                                 {"ReduceMax", with_bytes},
                                                                                                 {"ReduceMin", with_bytes},
                                                                                                 {"ReduceProd", with_integers},
                                                                                                 {"ReduceL1", with_integers},
                                                                                                 {"ReduceL2", kFloats},
                                                                                                 {"ReduceSumSquare", with_integers},
                                                                                                 {"ReduceLogSum", kFloats},
                                                                                                 {"ReduceLogSumExp", kFloats}})
    rows.push_back({name,
                    Skeleton::reduce,
                    {{value("x", dtypes), optional_value("axes", kInt64)}, {value("y", dtypes)}, attributes},
                    shape_of_reduce,
                    lower_reduce,
                    {},
                    host_bits(1)});
  for (OperatorRow& row : rows)
    row.overflows = row.name == "ReduceSum" || row.name == "ReduceProd" || row.name == "ReduceL1" || row.name == "ReduceL2" ||
                    row.name == "ReduceSumSquare";
  return rows;
}

}  // namespace pumice
