// Operators that only change the shape, and operators that only the host evaluates.
#include <algorithm>

#include "core/error.h"
#include "operators/geometry/index_bounds.h"
#include "operators/geometry/strided_views.h"
#include "operators/host/host_node.h"
#include "operators/index/lowerings.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

int64_t multiply_nonzero_sizes(const Shape& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes)
    if (size > 0) product = checked_mul(product, size, "reshaped elements");
  return product;
}

// Returns the size for -1 in a reshape of an empty tensor. Exporters use -1 even if the batch is 0: [0, 5, 32] reshaped to [0, 5, 4, -1] is
// [0, 5, 4, 8].
int64_t infer_size_of_empty_reshape(const Shape& x, const Shape& y) {
  const int64_t x_elements = multiply_nonzero_sizes(x), known_elements = multiply_nonzero_sizes(y);
  const bool same = std::count(x.begin(), x.end(), 0) == std::count(y.begin(), y.end(), 0);
  return same && x_elements % known_elements == 0 ? x_elements / known_elements : -1;
}

void infer_reshape_shape(ShapeContext& node) {
  const TensorDesc& x = node.input(0);
  Shape y = node.get_host_integers(1);
  const bool zero_is_zero = node.attributes().integer("allowzero", 0) != 0;
  const auto fail = [&] { node.fail(to_string(x.shape) + " reshaped to " + to_string(node.get_host_integers(1))); };
  int64_t* inferred = nullptr;
  int64_t known_elements = 1;
  for (size_t i = 0; i < y.size(); ++i) {
    if (y[i] == 0 && !zero_is_zero) i < x.shape.size() ? void(y[i] = x.shape[i]) : fail();
    if (y[i] < -1 || (y[i] == -1 && inferred)) fail();
    if (y[i] == -1)
      inferred = &y[i];
    else
      known_elements = checked_mul(known_elements, y[i], "reshaped elements");
  }
  if (inferred && known_elements != 0 && x.elements() % known_elements != 0) fail();
  if (inferred) *inferred = known_elements ? x.elements() / known_elements : infer_size_of_empty_reshape(x.shape, y);
  if (inferred && *inferred < 0) fail();
  if (element_count(y) != x.elements()) fail();
  node.output(0, x.dtype, y);
}

void infer_flatten_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto axis = static_cast<std::ptrdiff_t>(normalize_axis(node, node.attributes().integer("axis", 1), x.size(), true));
  node.output(0, node.input(0).dtype, {element_count({x.begin(), x.begin() + axis}), element_count({x.begin() + axis, x.end()})});
}

std::vector<int64_t> get_squeeze_axes(const ShapeContext& node) {
  return node.has(1) ? node.get_host_integers(1) : node.attributes().integers("axes");
}

void infer_squeeze_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto axes = normalize_axes(node, get_squeeze_axes(node), x.size());
  const bool all = !node.has(1) && !node.attributes().has("axes");
  Shape y;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const bool named = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (named && x[axis] != 1) node.fail("axis " + std::to_string(axis) + " of " + to_string(x) + " is not of size 1");
    if (!named && !(all && x[axis] == 1)) y.push_back(x[axis]);
  }
  node.output(0, node.input(0).dtype, y);
}

void infer_unsqueeze_shape(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto declared_axes = get_squeeze_axes(node);
  if (!node.has(1) && !node.attributes().has("axes")) node.fail("axes are missing");
  auto axes = normalize_axes(node, declared_axes, x.size() + declared_axes.size());
  std::sort(axes.begin(), axes.end());
  Shape y = x;
  for (const size_t axis : axes) y.insert(y.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  node.output(0, node.input(0).dtype, y);
}

void infer_dropout_shape(ShapeContext& node) {
  if (node.has(2) && (!node.host_tensor(2) || node.get_host_integers(2) != std::vector<int64_t>{0}))
    throw UnsupportedError("node '" + std::string(node.node()) + "': Dropout in training");
  infer_shape_like_input(node);
}

void infer_shape_of_shape(ShapeContext& node) {
  const auto rank = static_cast<int64_t>(node.input(0).shape.size());
  const auto bound = [&](std::string_view name, int64_t fallback) {
    const int64_t at = node.attributes().integer(name, fallback);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  node.output(0, DType::int64, {std::max<int64_t>(bound("end", rank) - bound("start", 0), 0)});
}

void infer_size_shape(ShapeContext& node) {
  node.output(0, DType::int64, {});
}

void infer_position_shape(ShapeContext& node) {
  node.output(0, DType::int64, {1});
}

void infer_distinct_axes_shape(ShapeContext& node) {
  const int64_t rank = node.get_host_integer(1);
  std::vector<size_t> axes;
  for (const int64_t declared_axis : node.get_host_integers(0))
    axes.push_back(normalize_axis(node, declared_axis, static_cast<size_t>(rank)));
  std::ranges::sort(axes);
  const auto repeated = std::ranges::unique(axes);
  node.output(0, DType::int64, {static_cast<int64_t>(axes.size() - repeated.size())});
}

void infer_same_shape(ShapeContext& node) {
  if (node.input(0).shape != node.input(1).shape)
    node.fail("expected a state of shape " + to_string(node.input(1).shape) + ", as before the iteration; given " +
              to_string(node.input(0).shape));
  infer_shape_like_input(node);
}

void infer_constant_shape(ShapeContext& node) {
  const Attributes& attributes = node.attributes();
  if (const HostTensor* tensor = attributes.tensor("value")) return node.output(0, tensor->desc.dtype, tensor->desc.shape);
  if (attributes.has("value_int")) return node.output(0, DType::int64, {});
  if (attributes.has("value_float")) return node.output(0, DType::float32, {});
  if (attributes.has("value_ints")) return node.output(0, DType::int64, {static_cast<int64_t>(attributes.integers("value_ints").size())});
  if (attributes.has("value_floats"))
    return node.output(0, DType::float32, {static_cast<int64_t>(attributes.reals("value_floats").size())});
  node.fail("Constant without a value");
}

void infer_bit_cast_shape(ShapeContext& node) {
  const DType source_dtype = node.input(0).dtype;
  const int64_t number = node.attributes().integer("to");
  const auto target_dtype = from_onnx_dtype(number);
  if (!target_dtype || !contains(kAny, *target_dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': BitCast to " +
                           (target_dtype ? std::string(name(*target_dtype)) : "ONNX element type " + std::to_string(number)));
  if (bits(source_dtype) != bits(*target_dtype))
    node.fail(std::string(name(source_dtype)) + " as " + std::string(name(*target_dtype)) + ": elements of different sizes");
  node.output(0, *target_dtype, node.input(0).shape);
}

// Returns the index of the input whose length determines the output rank: 1.
std::optional<size_t> get_rank_input(const Attributes&, bool lists) {
  return lists ? std::optional<size_t>(1) : std::nullopt;
}

// Returns the index of the input whose sizes determine the output rank. Without a list of axes, Squeeze removes all axes of size 1 of input
// 0.
std::optional<size_t> get_squeeze_rank_input(const Attributes& attributes, bool lists) {
  if (lists) return 1;
  return attributes.has("axes") ? std::nullopt : std::optional<size_t>(0);
}

// Adds the properties common to all operators that reshape input 0.
OperatorRow make_view_row(OperatorRow row) {
  row.skeleton = KernelKind::view;
  row.lower = lower_copy;
  row.alias.views = make_reshape_view;
  row.evaluate = evaluate_view;
  return row;
}

}  // namespace

OperatorRows define_view_operators() {
  const std::vector<ValueRole> x{value_role("x", kAny)}, y{value_role("y", kAny)},
      x_and_axes{value_role("x", kAny), optional_role("axes", kInt64)};
  const AttributeSchema axes = optional_attribute("axes", AttributeKind::integers);
  return {make_view_row({.name = "Identity",
                         .schema = {.inputs = x, .outputs = y, .in_place = 0b1},
                         .shape = infer_shape_like_input,
                         .alias = {.forwards = ForwardedInput::tensor}}),
          // Returns x. The program first checks the conditions on all other inputs.
          make_view_row({.name = "pumice::Require",
                         .schema = {.inputs = {value_role("x", kAny), optional_role("list0", kIndices), optional_role("list1", kIndices),
                                               optional_role("list2", kIndices), ValueRole{"others", kAny, true, true}},
                                    .outputs = y,
                                    .in_place = 0b1},
                         .shape = infer_shape_like_input,
                         .host_inputs = make_input_mask(1, 2, 3)}),
          // Returns x after checking that x and `before` have the same shape.
          make_view_row({.name = "pumice::Unchanged",
                         .schema = {.inputs = {value_role("x", kAny), value_role("before", kAny)}, .outputs = y, .in_place = 0b1},
                         .shape = infer_same_shape}),
          // Returns `begin`, the start of a slice on each axis of x, after checking that a slice of `size` fits.
          make_view_row({.name = "pumice::SliceBegin",
                         .schema = {.inputs = {value_role("begin", kIndices), value_role("x", kAny)},
                                    .outputs = y,
                                    .attributes = {required_attribute("size", AttributeKind::integers)},
                                    .in_place = 0b1},
                         .shape = infer_shape_like_input,
                         .indices = get_slice_begin_bounds}),
          // Returns `indices` after checking that they are valid on `axis` of x and not negative.
          make_view_row({.name = "pumice::Indices",
                         .schema = {.inputs = {value_role("indices", kIndices), value_role("x", kAny)},
                                    .outputs = y,
                                    .attributes = {required_attribute("axis", AttributeKind::integer)},
                                    .in_place = 0b1},
                         .shape = infer_shape_like_input,
                         .indices = get_leading_index_bounds,
                         .rejects_indices = true}),
          make_view_row({.name = "Reshape",
                         .schema = {.inputs = {value_role("x", kAny), value_role("shape", kInt64)},
                                    .outputs = y,
                                    .attributes = {integer_attribute("allowzero", 0)},
                                    .in_place = 0b1},
                         .shape = infer_reshape_shape,
                         .rank_from = get_rank_input,
                         .host_inputs = make_input_mask(1),
                         .host = {.assumed_values = AssumedHostValues::shape},
                         .alias = {.forwards = ForwardedInput::elements}}),
          make_view_row({.name = "Flatten",
                         .schema = {.inputs = x, .outputs = y, .attributes = {integer_attribute("axis", 1)}, .in_place = 0b1},
                         .shape = infer_flatten_shape,
                         .alias = {.forwards = ForwardedInput::elements}}),
          make_view_row({.name = "Squeeze",
                         .schema = {.inputs = x_and_axes, .outputs = y, .attributes = {axes}, .in_place = 0b1},
                         .shape = infer_squeeze_shape,
                         .rank_from = get_squeeze_rank_input,
                         .host_inputs = make_input_mask(1),
                         .alias = {.forwards = ForwardedInput::elements}}),
          make_view_row({.name = "Unsqueeze",
                         .schema = {.inputs = x_and_axes, .outputs = y, .attributes = {axes}, .in_place = 0b1},
                         .shape = infer_unsqueeze_shape,
                         .rank_from = get_rank_input,
                         .host_inputs = make_input_mask(1),
                         .alias = {.forwards = ForwardedInput::elements}}),
          make_view_row({.name = "Dropout",
                         .schema = {.inputs = {value_role("x", kFloats), optional_role("ratio", kFloats | make_dtype_set(DType::float64)),
                                               optional_role("training_mode", kBool)},
                                    .outputs = {value_role("y", kFloats), unsupported_role("mask")},
                                    .attributes = {optional_attribute("seed", AttributeKind::integer)},
                                    .in_place = 0b1},
                         .shape = infer_dropout_shape,
                         .host_inputs = make_input_mask(1, 2),
                         .alias = {.forwards = ForwardedInput::tensor}}),
          {.name = "BitCast",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x, .outputs = y, .attributes = {required_attribute("to", AttributeKind::integer)}},
           .shape = infer_bit_cast_shape,
           .lower = lower_bit_cast,
           .evaluate = evaluate_view,
           .precision = {.reads_bits = true}},
          // Has no lowering, because the host always computes the result.
          {.name = "Shape",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x,
                      .outputs = {value_role("y", kInt64)},
                      .attributes = {integer_attribute("start", 0), optional_attribute("end", AttributeKind::integer)}},
           .shape = infer_shape_of_shape,
           .host = {.reads_only_shapes = true},
           .evaluate = evaluate_shape},
          {.name = "Size",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x, .outputs = {value_role("y", kInt64)}},
           .shape = infer_size_shape,
           .host = {.reads_only_shapes = true},
           .evaluate = evaluate_size},
          // Returns `position` in a sequence of `length` elements, counted from the start. `past`: the position after the end is valid too.
          {.name = "pumice::Position",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = {value_role("position", kInt64), value_role("length", kInt64)},
                      .outputs = {value_role("y", kInt64)},
                      .attributes = {integer_attribute("past", 0)}},
           .shape = infer_position_shape,
           .host_inputs = make_input_mask(0, 1),
           .evaluate = evaluate_position},
          // Returns the axes, normalised to non-negative values, after checking that they are distinct axes of a tensor of the given rank.
          {.name = "pumice::DistinctAxes",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = {value_role("axes", kInt64), value_role("rank", kInt64)}, .outputs = {value_role("y", kInt64)}},
           .shape = infer_distinct_axes_shape,
           .host_inputs = make_input_mask(0, 1),
           .evaluate = evaluate_distinct_axes},
          {.name = "Constant",
           .skeleton = KernelKind::copy,
           .schema = {.outputs = y,
                      .attributes = {optional_attribute("value", AttributeKind::tensor),
                                     optional_attribute("value_int", AttributeKind::integer),
                                     optional_attribute("value_float", AttributeKind::real),
                                     optional_attribute("value_ints", AttributeKind::integers),
                                     optional_attribute("value_floats", AttributeKind::reals)}},
           .shape = infer_constant_shape,
           .evaluate = evaluate_constant}};
}

}  // namespace pumice
