// Operators that make tensors out of a shape, or keep parts of one in their place.
#include "core/error.h"
#include "operators/geometry/index_bounds.h"
#include "operators/row/families.h"
#include "operators/row/onnx_dtype.h"
#include "operators/row/row_parts.h"

namespace pumice {
namespace {

void shape_of_constant_of_shape(ShapeContext& node) {
  const HostTensor* value = node.attributes().tensor("value");
  if (value && value->desc.elements() != 1) node.fail("value: one element expected; given " + to_string(value->desc.shape));
  const Shape shape = node.host_integers(0);
  node.output(0, value ? value->desc.dtype : DType::float32, shape);
}

void shape_of_eye_like(ShapeContext& node) {
  DType dtype = node.input(0).dtype;
  if (node.attributes().has("dtype")) {
    const auto given = dtype_from_onnx(node.attributes().integer("dtype"));
    if (!given || !contains(kAny, *given))
      throw UnsupportedError(
          "node '" + std::string(node.node()) + "': EyeLike as " +
          (given ? std::string(name(*given)) : "ONNX element type " + std::to_string(node.attributes().integer("dtype"))));
    dtype = *given;
  }
  node.output(0, dtype, node.input(0).shape);
}

void shape_of_one_hot(ShapeContext& node) {
  check_vector(node, 2, 2, "values");
  if (node.input(1).elements() != 1) node.fail("the depth must be a scalar; given " + to_string(node.input(1).shape));
  const int64_t depth = node.host_integer(1);
  Shape y = node.input(0).shape;
  const size_t axis = checked_axis(node, node.attributes().integer("axis", -1), y.size() + 1);
  y.insert(y.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  node.output(0, node.input(2).dtype, y);
}

void shape_of_trilu(ShapeContext& node) {
  if (node.has(1) && node.input(1).elements() != 1) node.fail("k must be a scalar; given " + to_string(node.input(1).shape));
  shape_like_input(node);
}

void shape_of_reverse_sequence(ShapeContext& node) {
  const int64_t batch = node.attributes().integer("batch_axis"), time = node.attributes().integer("time_axis");
  if (batch + time != 1 || batch * time != 0)
    node.fail("batch_axis " + std::to_string(batch) + " and time_axis " + std::to_string(time) + "; one is 0 and the other 1");
  check_vector(node, 1, node.input(0).shape[static_cast<size_t>(batch)], "sequence lengths");
  shape_like_input(node);
}

}  // namespace

Rows fill_rows() {
  const ValueRole x = value("x", kAny);
  const std::vector<ValueRole> y{value("y", kAny)};
  return {{"ConstantOfShape",
           Skeleton::copy,
           {{value("shape", kInt64)}, y, {optional("value", AttributeKind::tensor)}, 1, 1},
           shape_of_constant_of_shape,
           lower_constant_of_shape,
           {},
           host_bits(0)},
          {"EyeLike",
           Skeleton::copy,
           {{x}, y, {optional("dtype", AttributeKind::integer), integer("k", 0)}, 2, 2},
           shape_of_eye_like,
           lower_eye_like},
          {"OneHot",
           Skeleton::index_map,
           {{value("indices", kIndices), value("depth", kIntegers), value("values", kAny)}, y, {integer("axis", -1)}},
           shape_of_one_hot,
           lower_one_hot,
           {},
           host_bits(1)},
          {"Trilu",
           Skeleton::index_map,
           {{x, optional_value("k", kInt64)}, y, {integer("upper", 1)}, 2},
           shape_of_trilu,
           lower_trilu,
           {},
           host_bits(1)},
          with_indices(lengths_of_time, {"ReverseSequence",
                                         Skeleton::index_map,
                                         {{x, value("sequence_lens", kInt64)}, y, {integer("batch_axis", 1), integer("time_axis", 0)}, 2},
                                         shape_of_reverse_sequence,
                                         lower_reverse_sequence})};
}

}  // namespace pumice
