// Operator rows of reductions. The axes are an attribute or input 1.
#include "operators/common/split_axes.h"
#include "operators/host/host_node.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

constexpr ReductionFold kMinFold{.start = FoldInitialValue::highest, .step = "min(s, v)", .merge = "min(s, t)"},
    kL1Fold{.step = "s + abs(v)"}, kL2Fold{.step = "s + v * v", .finish = "sqrt(s)"}, kLogSumFold{.finish = "log(s)"},
    kSquareFold{.step = "s + v * v"};

std::vector<int64_t> get_declared_axes(const ShapeContext& node) {
  if (!node.has(1)) return node.attributes().integers("axes");
  if (node.attributes().has("axes")) node.fail("axes are given as an attribute and as an input");
  return node.get_host_integers(1);
}

void infer_reduce_shape(ShapeContext& node) {
  const TensorDesc& x = node.input(0);
  const auto axes = normalize_axes(node, get_declared_axes(node), x.shape.size());
  const bool all = axes.empty() && node.attributes().integer("noop_with_empty_axes", 0) == 0;
  const bool keep = node.attributes().integer("keepdims", 1) != 0;
  Shape y;
  for (size_t axis = 0; axis < x.shape.size(); ++axis) {
    const bool reduced = all || std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (!reduced || keep) y.push_back(reduced ? 1 : x.shape[axis]);
  }
  node.output(0, x.dtype, y);
}

// Returns the index of the input that determines the output rank: without keepdims, the length of input 1 (the axes) does.
std::optional<size_t> get_reduce_rank_input(const Attributes& attributes, bool lists) {
  return lists && attributes.integer("keepdims", 1) == 0 ? std::optional<size_t>(1) : std::nullopt;
}

void infer_arg_reduce_shape(ShapeContext& node) {
  Shape y = node.input(0).shape;
  const size_t axis = y.empty() ? 0 : normalize_axis(node, node.attributes().integer("axis", 0), y.size());
  const int64_t size = y.empty() ? 1 : y[axis];
  if (!y.empty() && node.attributes().integer("keepdims", 1) != 0)
    y[axis] = 1;
  else if (!y.empty())
    y.erase(y.begin() + static_cast<std::ptrdiff_t>(axis));
  if (size == 0 && element_count(y) > 0)
    node.fail("axis " + std::to_string(axis) + " of " + to_string(node.input(0).shape) + " has no elements to choose from");
  node.output(0, DType::int64, y);
}

void append_reduce_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank();
  std::vector<int64_t> declared_axes = node.attributes->integers("axes");
  if (node.has_input(1)) {
    if (!node.host_tensor(1)) return;
    declared_axes = node.host_tensor(1)->as_int64();
  }
  const bool reduces_nothing = declared_axes.empty() && node.attributes->integer("noop_with_empty_axes", 0) != 0;
  append_kept_axes(node, axes, [&](int axis) {
    return declared_axes.empty() ? !reduces_nothing
                                 : std::ranges::any_of(declared_axes, [&](int64_t each) { return normalize_axis(each, rank) == axis; });
  });
}

void append_arg_reduce_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int reduced_axis = normalize_axis(node.attributes->integer("axis", 0), node.input(kData).rank());
  append_kept_axes(node, axes, [&](int axis) { return axis == reduced_axis; });
}

}  // namespace

OperatorRows define_reduce_operators() {
  constexpr DTypeSet reals = kFloats | make_dtype_set(DType::float64),
                     with_integers = reals | kIndices | make_dtype_set(DType::uint32, DType::uint64),
                     with_bytes = with_integers | kBool | make_dtype_set(DType::int8, DType::uint8);
  const std::vector<AttributeSchema> attributes{optional_attribute("axes", AttributeKind::integers), integer_attribute("keepdims", 1),
                                                integer_attribute("noop_with_empty_axes", 0)};
  struct ReduceOperator {
    std::string_view name;
    DTypeSet dtypes;
    const ReductionFold* fold;
    bool on_host = false, overflows = false;
    std::string_view definition = {};
  };
  constexpr ReduceOperator reductions[] = {
      {.name = "ReduceSum", .dtypes = with_integers, .fold = &kSumFold, .on_host = true, .overflows = true},
      {.name = "ReduceMean", .dtypes = with_integers, .fold = &kMeanFold},
      {.name = "ReduceMax", .dtypes = with_bytes, .fold = &kMaxFold, .on_host = true},
      {.name = "ReduceMin", .dtypes = with_bytes, .fold = &kMinFold, .on_host = true},
      {.name = "ReduceProd", .dtypes = with_integers, .fold = &kProductFold, .on_host = true, .overflows = true},
      {.name = "ReduceL1", .dtypes = with_integers, .fold = &kL1Fold, .overflows = true},
      {.name = "ReduceL2", .dtypes = reals, .fold = &kL2Fold, .overflows = true},
      {.name = "ReduceSumSquare", .dtypes = with_integers, .fold = &kSquareFold, .overflows = true},
      {.name = "ReduceLogSum", .dtypes = reals, .fold = &kLogSumFold},
      {.name = "ReduceLogSumExp", .dtypes = reals, .fold = &kLogSumExpFold},
  };
  OperatorRows rows;
  for (const ReduceOperator& reduction : reductions)
    rows.push_back({.name = reduction.name,
                    .skeleton = KernelKind::reduce,
                    .schema = {.inputs = {value_role("x", reduction.dtypes), optional_role("axes", kInt64)},
                               .outputs = {value_role("y", reduction.dtypes)},
                               .attributes = attributes,
                               .definition = reduction.definition},
                    .shape = infer_reduce_shape,
                    .rank_from = get_reduce_rank_input,
                    .lower = lower_reduce,
                    .host_inputs = make_input_mask(1),
                    .split = append_reduce_split_axes,
                    .evaluate = reduction.on_host ? evaluate_reduce : nullptr,
                    .precision = {.overflows = reduction.overflows, .mixed_precision = true},
                    .epilogue = true,
                    .fold = reduction.fold});
  for (const auto& [name, form] : {std::pair("ArgMax", kArgMax), std::pair("ArgMin", kArgMin)})
    rows.push_back({.name = name,
                    .skeleton = KernelKind::reduce,
                    .schema = {.inputs = {value_role("x", kNumbers | make_dtype_set(DType::float64))},
                               .outputs = {value_role("y", kInt64)},
                               .attributes = {integer_attribute("axis", 0), integer_attribute("keepdims", 1),
                                              integer_attribute("select_last_index", 0)}},
                    .shape = infer_arg_reduce_shape,
                    .lower = lower_arg_reduce,
                    .form = form,
                    .split = append_arg_reduce_split_axes,
                    .epilogue = true});
  return rows;
}

}  // namespace pumice
