// Operator rows and lowerings of ConstantOfShape, EyeLike, OneHot, Trilu and ReverseSequence, and the row of Range.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "operators/common/split_axes.h"
#include "operators/common/strided_copy.h"
#include "operators/geometry/index_bounds.h"
#include "operators/host/host_node.h"
#include "operators/index/lowerings.h"
#include "operators/table/host_tensor_access.h"
#include "operators/table/onnx_dtype.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void infer_constant_of_shape_shape(ShapeContext& node) {
  const HostTensor* value = node.attributes().tensor("value");
  if (value && value->desc.elements() != 1) node.fail("value: expected one element; given " + to_string(value->desc.shape));
  const Shape shape = node.get_host_integers(0);
  node.output(0, value ? value->desc.dtype : DType::float32, shape);
}

void infer_eye_like_shape(ShapeContext& node) {
  DType dtype = node.input(0).dtype;
  if (node.attributes().has("dtype")) {
    const auto declared = from_onnx_dtype(node.attributes().integer("dtype"));
    if (!declared || !contains(kAny, *declared))
      throw UnsupportedError(
          "node '" + std::string(node.node()) + "': EyeLike as " +
          (declared ? std::string(name(*declared)) : "ONNX element type " + std::to_string(node.attributes().integer("dtype"))));
    dtype = *declared;
  }
  node.output(0, dtype, node.input(0).shape);
}

void infer_one_hot_shape(ShapeContext& node) {
  check_vector(node, 2, 2, "values");
  if (node.input(1).elements() != 1) node.fail("the depth must be a scalar; given " + to_string(node.input(1).shape));
  const int64_t depth = node.get_host_integer(1);
  Shape y = node.input(0).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", -1), y.size() + 1);
  y.insert(y.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  node.output(0, node.input(2).dtype, y);
}

void infer_trilu_shape(ShapeContext& node) {
  if (node.has(1) && node.input(1).elements() != 1) node.fail("k must be a scalar; given " + to_string(node.input(1).shape));
  infer_shape_like_input(node);
}

void infer_reverse_sequence_shape(ShapeContext& node) {
  const int64_t batch = node.attributes().integer("batch_axis"), time = node.attributes().integer("time_axis");
  if (batch + time != 1 || batch * time != 0)
    node.fail("batch_axis " + std::to_string(batch) + " and time_axis " + std::to_string(time) + "; one must be 0 and the other 1");
  check_vector(node, 1, node.input(0).shape[static_cast<size_t>(batch)], "sequence lengths");
  infer_shape_like_input(node);
}

void append_reverse_sequence_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int rank = node.input(kData).rank(), time = normalize_axis(node.attributes->integer("time_axis", 0), rank),
            batch = normalize_axis(node.attributes->integer("batch_axis", 1), rank);
  append_axes_except(node, axes, [&](int axis) { return axis == time; });
  for (SplitAxis& split : axes)
    if (split.inputs[kData] == batch) split.inputs[1] = 0;
}

void append_fill_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const Shape& shape = node.output(0).shape;
  for (int axis = 0; axis < node.output(0).rank(); ++axis)
    axes.push_back({shape[static_cast<size_t>(axis)], std::vector<int>(node.inputs.size(), kNotSplit), {axis}, {}});
}

// OneHot can be split along all axes of `indices`, but not along the depth axis that it inserts.
void append_one_hot_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int depth = normalize_axis(node.attributes->integer("axis", -1), node.output(0).rank());
  for (int axis = 0; axis < node.input(kData).rank(); ++axis) {
    axes.push_back(make_split_axis(node, axis));
    axes.back().outputs = {axis < depth ? axis : axis + 1};
  }
}

// The output of Range has max(ceil((limit - start) / delta), 0) elements.
void infer_range_shape(ShapeContext& node) {
  for (size_t i = 0; i < 3; ++i)
    if (node.input(i).elements() != 1)
      node.fail("start, limit and delta must be scalars; input " + std::to_string(i) + " is " + to_string(node.input(i).shape));
  int64_t count = 0;
  if (is_float(node.input(0).dtype)) {
    std::array<double, 3> bounds{};
    for (size_t i = 0; i < 3; ++i) bounds[i] = node.get_host_real(i);
    const double length = std::ceil((bounds[1] - bounds[0]) / bounds[2]);
    if (bounds[2] == 0 || !(length < 9e15))
      node.fail("a range from " + std::to_string(bounds[0]) + " to " + std::to_string(bounds[1]) + " in steps of " +
                std::to_string(bounds[2]));
    count = static_cast<int64_t>(std::max(length, 0.0));
  } else {
    const int64_t start = node.get_host_integer(0), limit = node.get_host_integer(1), delta = node.get_host_integer(2);
    if (delta == 0) node.fail("delta is 0: the range would never end");
    const int64_t distance = checked_add(limit, -start, "range");
    count = std::max<int64_t>(distance / delta + (distance % delta != 0 && (distance < 0) == (delta < 0) ? 1 : 0), 0);
  }
  node.output(0, node.input(0).dtype, {count});
}

std::vector<int64_t> to_uint32_words(const HostTensor& element) {
  const auto words = get_first_element_bits(element);
  return {words[0], words[1]};
}

// Clamps the offset of a diagonal to +-2^30. No matrix is larger than that, so larger offsets have the same result.
int64_t clamp_diagonal(int64_t k) {
  constexpr int64_t kMaxOffset = int64_t{1} << 30;
  return std::clamp(k, -kMaxOffset, kMaxOffset);
}

void lower_constant_of_shape(LowerContext& node) {
  const DType dtype = node.output(0).dtype;
  const HostTensor* value = node.attributes->tensor("value");
  add_contiguous_output(node, 0, "fill.comp", {{"DIAGONAL", "0"}}, [&](StepBuilder& step) {
    step.set("value", to_uint32_words(value ? value->converted(dtype) : HostTensorWriter(TensorDesc(dtype, {})).take()));
  });
}

void lower_eye_like(LowerContext& node) {
  const TensorDesc& y = node.output(0);
  HostTensorWriter unit(TensorDesc(y.dtype, {}));
  unit.store(0, int64_t{1});
  add_contiguous_output(node, 0, "fill.comp", {{"DIAGONAL", "1"}}, [&](StepBuilder& step) {
    step.set("value", to_uint32_words(unit.take())).set("columns", y.shape[1]).set("k", clamp_diagonal(node.attributes->integer("k")));
  });
}

void lower_one_hot(LowerContext& node) {
  const TensorDesc &indices = node.input(0), &y = node.output(0);
  const int64_t declared_axis = node.attributes->integer("axis", -1);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + y.rank() : declared_axis);
  add_contiguous_output(node, 0, "one_hot.comp", {}, [&](StepBuilder& step) {
    step.bind("indices", get_contiguous_input(node, 0)).bind("values", get_contiguous_input(node, 2));
    step.set("index_words", bits(indices.dtype) / 32).set("depth", y.shape[axis]).set("inner", packed_strides(y.shape)[axis]);
  });
}

void lower_trilu(LowerContext& node) {
  const Shape& shape = node.output(0).shape;
  int64_t k = 0;
  if (node.has_input(1)) {
    const HostTensor* host = node.host_tensor(1);
    if (!host) throw UnsupportedError("node '" + std::string(node.node) + "': k of Trilu must be known on the host");
    k = host->as_int64()[0];
  }
  add_contiguous_output(node, 0, "trilu.comp", {}, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0))
        .set("k", clamp_diagonal(k))
        .set("upper", node.attributes->integer("upper", 1) != 0 ? 1 : 0);
    step.set("rows", shape[shape.size() - 2]).set("columns", shape.back());
  });
}

void lower_reverse_sequence(LowerContext& node) {
  const Shape& shape = node.output(0).shape;
  const bool time_first = node.attributes->integer("time_axis", 0) == 0;
  add_contiguous_output(node, 0, "reverse_sequence.comp", {}, [&](StepBuilder& step) {
    step.bind("x", get_contiguous_input(node, 0)).bind("indices", get_contiguous_input(node, 1)).set("index_words", 2);
    step.set("inner", packed_strides(shape)[1]).set("size", shape[1]);
    step.set("time", shape[time_first ? 0 : 1]).set("time_first", time_first ? 1 : 0);
  });
}

constexpr DTypeSet kRangeTypes = kFloats | make_dtype_set(DType::float64, DType::int16, DType::int32, DType::int64);

}  // namespace

OperatorRows define_fill_operators() {
  const ValueRole x = value_role("x", kAny);
  const std::vector<ValueRole> y{value_role("y", kAny)};
  return {
      {.name = "ConstantOfShape",
       .skeleton = KernelKind::copy,
       .schema = {.inputs = {value_role("shape", kInt64)},
                  .outputs = y,
                  .attributes = {optional_attribute("value", AttributeKind::tensor)},
                  .min_rank = 1,
                  .max_rank = 1},
       .shape = infer_constant_of_shape_shape,
       .rank_from = [](const Attributes&, bool) -> std::optional<size_t> { return 0; },
       .lower = lower_constant_of_shape,
       .host_inputs = make_input_mask(0),
       .host = {.fill_attribute = "value"},
       .split = append_fill_split_axes,
       .evaluate = evaluate_constant_of_shape},
      {.name = "EyeLike",
       .skeleton = KernelKind::copy,
       .schema = {.inputs = {x},
                  .outputs = y,
                  .attributes = {optional_attribute("dtype", AttributeKind::integer), integer_attribute("k", 0)},
                  .min_rank = 2,
                  .max_rank = 2},
       .shape = infer_eye_like_shape,
       .lower = lower_eye_like},
      {.name = "OneHot",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("indices", kIndices), value_role("depth", kIntegers), value_role("values", kAny)},
                  .outputs = y,
                  .attributes = {integer_attribute("axis", -1)}},
       .shape = infer_one_hot_shape,
       .lower = lower_one_hot,
       .host_inputs = make_input_mask(1),
       .split = append_one_hot_split_axes,
       .evaluate = evaluate_one_hot},
      {.name = "Trilu",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {x, optional_role("k", kInt64)}, .outputs = y, .attributes = {integer_attribute("upper", 1)}, .min_rank = 2},
       .shape = infer_trilu_shape,
       .lower = lower_trilu,
       .host_inputs = make_input_mask(1),
       .split = append_axes_except_last_two,
       .evaluate = evaluate_trilu},
      {.name = "ReverseSequence",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {x, value_role("sequence_lens", kInt64)},
                  .outputs = y,
                  .attributes = {integer_attribute("batch_axis", 1), integer_attribute("time_axis", 0)},
                  .min_rank = 2},
       .shape = infer_reverse_sequence_shape,
       .lower = lower_reverse_sequence,
       .indices = get_sequence_length_bounds,
       .split = append_reverse_sequence_split_axes},
      {.name = "Range",
       .skeleton = KernelKind::map,
       .schema = {.inputs = {value_role("start", kRangeTypes, 'T'), value_role("limit", kRangeTypes, 'T'),
                             value_role("delta", kRangeTypes, 'T')},
                  .outputs = {value_role("y", kRangeTypes)}},
       .shape = infer_range_shape,
       .lower = lower_range,
       .host_inputs = make_input_mask(0, 1, 2),
       .host = {.element_inputs = make_input_mask(0, 1, 2)},
       .strides = StrideSupport::packed,
       .evaluate = evaluate_range}};
}

}  // namespace pumice
