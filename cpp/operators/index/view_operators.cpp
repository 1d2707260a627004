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

// Exporters use -1 for the last axis even if the batch is 0: [0, 5, 32] reshaped to [0, 5, 4, -1] is [0, 5, 4, 8].
int64_t infer_size_of_empty_reshape(const Shape& x, const Shape& y) {
  const int64_t x_elements = multiply_nonzero_sizes(x), known_elements = multiply_nonzero_sizes(y);
  const bool same = std::count(x.begin(), x.end(), 0) == std::count(y.begin(), y.end(), 0);
  return same && x_elements % known_elements == 0 ? x_elements / known_elements : -1;
}

void shape_of_reshape(ShapeContext& node) {
  const TensorDesc& x = node.input(0);
  Shape y = node.host_integers(1);
  const bool zero_is_zero = node.attributes().integer("allowzero", 0) != 0;
  const auto fail = [&] { node.fail(to_string(x.shape) + " reshaped to " + to_string(node.host_integers(1))); };
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

void shape_of_flatten(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto axis = static_cast<std::ptrdiff_t>(normalize_axis(node, node.attributes().integer("axis", 1), x.size(), true));
  node.output(0, node.input(0).dtype, {element_count({x.begin(), x.begin() + axis}), element_count({x.begin() + axis, x.end()})});
}

std::vector<int64_t> get_squeeze_axes(const ShapeContext& node) {
  return node.has(1) ? node.host_integers(1) : node.attributes().integers("axes");
}

void shape_of_squeeze(ShapeContext& node) {
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

void shape_of_unsqueeze(ShapeContext& node) {
  const Shape& x = node.input(0).shape;
  const auto declared_axes = get_squeeze_axes(node);
  if (!node.has(1) && !node.attributes().has("axes")) node.fail("axes are missing");
  auto axes = normalize_axes(node, declared_axes, x.size() + declared_axes.size());
  std::sort(axes.begin(), axes.end());
  Shape y = x;
  for (const size_t axis : axes) y.insert(y.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  node.output(0, node.input(0).dtype, y);
}

void shape_of_dropout(ShapeContext& node) {
  if (node.has(2) && (!node.host(2) || node.host_integers(2) != std::vector<int64_t>{0}))
    throw UnsupportedError("node '" + std::string(node.node()) + "': Dropout in training");
  shape_like_input(node);
}

void shape_of_shape(ShapeContext& node) {
  const auto rank = static_cast<int64_t>(node.input(0).shape.size());
  const auto bound = [&](std::string_view name, int64_t fallback) {
    const int64_t at = node.attributes().integer(name, fallback);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  node.output(0, DType::int64, {std::max<int64_t>(bound("end", rank) - bound("start", 0), 0)});
}

void shape_of_size(ShapeContext& node) {
  node.output(0, DType::int64, {});
}

void shape_of_position(ShapeContext& node) {
  node.output(0, DType::int64, {1});
}

void shape_of_distinct_axes(ShapeContext& node) {
  const int64_t rank = node.host_integer(1);
  std::vector<size_t> axes;
  for (const int64_t declared_axis : node.host_integers(0)) axes.push_back(normalize_axis(node, declared_axis, static_cast<size_t>(rank)));
  std::ranges::sort(axes);
  const auto repeated = std::ranges::unique(axes);
  node.output(0, DType::int64, {static_cast<int64_t>(axes.size() - repeated.size())});
}

void shape_of_unchanged(ShapeContext& node) {
  if (node.input(0).shape != node.input(1).shape)
    node.fail("a state of shape " + to_string(node.input(1).shape) + " expected, as before the iteration; given " +
              to_string(node.input(0).shape));
  shape_like_input(node);
}

void shape_of_constant(ShapeContext& node) {
  const Attributes& attributes = node.attributes();
  if (const HostTensor* tensor = attributes.tensor("value")) return node.output(0, tensor->desc.dtype, tensor->desc.shape);
  if (attributes.has("value_int")) return node.output(0, DType::int64, {});
  if (attributes.has("value_float")) return node.output(0, DType::float32, {});
  if (attributes.has("value_ints")) return node.output(0, DType::int64, {static_cast<int64_t>(attributes.integers("value_ints").size())});
  if (attributes.has("value_floats"))
    return node.output(0, DType::float32, {static_cast<int64_t>(attributes.reals("value_floats").size())});
  node.fail("Constant without a value");
}

void shape_of_bit_cast(ShapeContext& node) {
  const DType source_dtype = node.input(0).dtype;
  const int64_t number = node.attributes().integer("to");
  const auto target_dtype = dtype_from_onnx(number);
  if (!target_dtype || !contains(kAny, *target_dtype))
    throw UnsupportedError("node '" + std::string(node.node()) + "': BitCast to " +
                           (target_dtype ? std::string(name(*target_dtype)) : "ONNX element type " + std::to_string(number)));
  if (bits(source_dtype) != bits(*target_dtype))
    node.fail(std::string(name(source_dtype)) + " as " + std::string(name(*target_dtype)) + ": elements of another size");
  node.output(0, *target_dtype, node.input(0).shape);
}

// Returns input 1, whose length determines the output rank.
std::optional<size_t> get_rank_input(const Attributes&, bool lists) {
  return lists ? std::optional<size_t>(1) : std::nullopt;
}

// Without a list of axes, all axes of size 1 are removed, so the output rank depends on input 0.
std::optional<size_t> get_squeeze_rank_input(const Attributes& attributes, bool lists) {
  if (lists) return 1;
  return attributes.has("axes") ? std::nullopt : std::optional<size_t>(0);
}

// Adds the properties common to all operators that reshape input 0.
OperatorRow make_view_row(OperatorRow row) {
  row.skeleton = KernelKind::view;
  row.lower = lower_copy;
  row.views = make_reshape_view;
  row.evaluate = evaluate_view;
  return row;
}

}  // namespace

OperatorRows view_operators() {
  const std::vector<ValueRole> x{value("x", kAny)}, y{value("y", kAny)}, x_and_axes{value("x", kAny), optional_value("axes", kInt64)};
  const AttributeSchema axes = optional("axes", AttributeKind::integers);
  return {make_view_row({.name = "Identity",
                         .schema = {.inputs = x, .outputs = y, .in_place = 0b1},
                         .shape = shape_like_input,
                         .forwards = ForwardedInput::tensor}),
          // Returns x after the program has checked conditions on the other inputs. The host reads the lists.
          make_view_row({.name = "pumice::Require",
                         .schema = {.inputs = {value("x", kAny), optional_value("list0", kIndices), optional_value("list1", kIndices),
                                               optional_value("list2", kIndices), ValueRole{"others", kAny, true, true}},
                                    .outputs = y,
                                    .in_place = 0b1},
                         .shape = shape_like_input,
                         .host_inputs = input_bits(1, 2, 3)}),
          // Returns x after checking that `before` has the same shape.
          make_view_row({.name = "pumice::Unchanged",
                         .schema = {.inputs = {value("x", kAny), value("before", kAny)}, .outputs = y, .in_place = 0b1},
                         .shape = shape_of_unchanged}),
          // Returns `begin`, the start of a slice on each axis of x, after checking that a slice of `size` fits.
          make_view_row({.name = "pumice::SliceBegin",
                         .schema = {.inputs = {value("begin", kIndices), value("x", kAny)},
                                    .outputs = y,
                                    .attributes = {required("size", AttributeKind::integers)},
                                    .in_place = 0b1},
                         .shape = shape_like_input,
                         .indices = slice_begin_bounds}),
          // Returns `indices` after checking that they are valid on `axis` of x and not negative.
          make_view_row({.name = "pumice::Indices",
                         .schema = {.inputs = {value("indices", kIndices), value("x", kAny)},
                                    .outputs = y,
                                    .attributes = {required("axis", AttributeKind::integer)},
                                    .in_place = 0b1},
                         .shape = shape_like_input,
                         .indices = leading_index_bounds,
                         .rejects_indices = true}),
          make_view_row({.name = "Reshape",
                         .schema = {.inputs = {value("x", kAny), value("shape", kInt64)},
                                    .outputs = y,
                                    .attributes = {integer("allowzero", 0)},
                                    .in_place = 0b1},
                         .shape = shape_of_reshape,
                         .rank_from = get_rank_input,
                         .host_inputs = input_bits(1),
                         .assumed_values = AssumedHostValues::shape,
                         .forwards = ForwardedInput::elements}),
          make_view_row({.name = "Flatten",
                         .schema = {.inputs = x, .outputs = y, .attributes = {integer("axis", 1)}, .in_place = 0b1},
                         .shape = shape_of_flatten,
                         .forwards = ForwardedInput::elements}),
          make_view_row({.name = "Squeeze",
                         .schema = {.inputs = x_and_axes, .outputs = y, .attributes = {axes}, .in_place = 0b1},
                         .shape = shape_of_squeeze,
                         .rank_from = get_squeeze_rank_input,
                         .host_inputs = input_bits(1),
                         .forwards = ForwardedInput::elements}),
          make_view_row({.name = "Unsqueeze",
                         .schema = {.inputs = x_and_axes, .outputs = y, .attributes = {axes}, .in_place = 0b1},
                         .shape = shape_of_unsqueeze,
                         .rank_from = get_rank_input,
                         .host_inputs = input_bits(1),
                         .forwards = ForwardedInput::elements}),
          make_view_row({.name = "Dropout",
                         .schema = {.inputs = {value("x", kFloats), optional_value("ratio", kFloats | set_of(DType::float64)),
                                               optional_value("training_mode", kBool)},
                                    .outputs = {value("y", kFloats), unsupported_value("mask")},
                                    .attributes = {optional("seed", AttributeKind::integer)},
                                    .in_place = 0b1},
                         .shape = shape_of_dropout,
                         .host_inputs = input_bits(1, 2),
                         .forwards = ForwardedInput::tensor}),
          {.name = "BitCast",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x, .outputs = y, .attributes = {required("to", AttributeKind::integer)}},
           .shape = shape_of_bit_cast,
           .lower = lower_bit_cast,
           .evaluate = evaluate_view,
           .reads_bits = true},
          // No lowering: the value is computed on the host.
          {.name = "Shape",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x,
                      .outputs = {value("y", kInt64)},
                      .attributes = {integer("start", 0), optional("end", AttributeKind::integer)}},
           .shape = shape_of_shape,
           .evaluate = evaluate_shape,
           .reads_only_shapes = true},
          {.name = "Size",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = x, .outputs = {value("y", kInt64)}},
           .shape = shape_of_size,
           .evaluate = evaluate_size,
           .reads_only_shapes = true},
          // Returns `position` in a sequence of `length` elements, counted from the start. `past`: the position after the end is valid too.
          {.name = "pumice::Position",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = {value("position", kInt64), value("length", kInt64)},
                      .outputs = {value("y", kInt64)},
                      .attributes = {integer("past", 0)}},
           .shape = shape_of_position,
           .host_inputs = input_bits(0, 1),
           .evaluate = evaluate_position},
          // Returns distinct axes of a tensor of that rank, normalised to non-negative values.
          {.name = "pumice::DistinctAxes",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = {value("axes", kInt64), value("rank", kInt64)}, .outputs = {value("y", kInt64)}},
           .shape = shape_of_distinct_axes,
           .host_inputs = input_bits(0, 1),
           .evaluate = evaluate_distinct_axes},
          {.name = "Constant",
           .skeleton = KernelKind::copy,
           .schema = {.outputs = y,
                      .attributes = {optional("value", AttributeKind::tensor), optional("value_int", AttributeKind::integer),
                                     optional("value_float", AttributeKind::real), optional("value_ints", AttributeKind::integers),
                                     optional("value_floats", AttributeKind::reals)}},
           .shape = shape_of_constant,
           .evaluate = evaluate_constant}};
}

}  // namespace pumice
