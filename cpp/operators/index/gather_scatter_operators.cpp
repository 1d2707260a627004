// Operator rows of gather and scatter.
#include <algorithm>

#include "operators/common/split_axes.h"
#include "operators/geometry/index_bounds.h"
#include "operators/host/host_node.h"
#include "operators/index/lowerings.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/non_zero.h"
#include "operators/table/row_builders.h"

namespace pumice {
namespace {

void shape_of_gather(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const auto axis = x.begin() + static_cast<std::ptrdiff_t>(normalize_axis(node, node.attributes().integer("axis", 0), x.size()));
  if (*axis == 0 && node.input(1).elements() > 0) node.fail("indices are given, but the axis that they count on has no elements");
  Shape y(x.begin(), axis);
  y.insert(y.end(), indices.begin(), indices.end());
  y.insert(y.end(), axis + 1, x.end());
  node.output(0, node.input(0).dtype, y);
}

// One index per element along `axis`; the other axes are at most as long as those of x.
void check_element_indices(const ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", 0), x.size());
  if (indices.size() != x.size())
    node.fail("indices of shape " + to_string(indices) + " for a tensor of shape " + to_string(x) + "; one rank expected");
  for (size_t i = 0; i < x.size(); ++i)
    if (i != axis && indices[i] > x[i])
      node.fail("indices of shape " + to_string(indices) + " are larger than " + to_string(x) + " on axis " + std::to_string(i));
  if (x[axis] == 0 && node.input(1).elements() > 0) node.fail("indices are given, but the axis that they count on has no elements");
}

void shape_of_gather_elements(ShapeContext& node) {
  check_element_indices(node);
  node.output(0, node.input(0).dtype, node.input(1).shape);
}

void shape_of_scatter_elements(ShapeContext& node) {
  check_element_indices(node);
  if (node.input(2).shape != node.input(1).shape)
    node.fail("updates of shape " + to_string(node.input(2).shape) + " for indices of shape " + to_string(node.input(1).shape));
  shape_like_input(node);
}

// Returns the GatherND output shape: the indices' shape without the tuple axis, then the axes of x that a tuple does not index.
Shape infer_gather_nd_shape(const ShapeContext& node, size_t batch) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  if (indices.empty()) node.fail("indices of at least one axis, whose last holds an address, expected; given a scalar");
  if (batch >= std::min(x.size(), indices.size()))
    node.fail("batch_dims is " + std::to_string(batch) + ", which is too many for " + to_string(x) + " and indices of shape " +
              to_string(indices));
  const int64_t length = indices.back();
  if (length < 1 || length > static_cast<int64_t>(x.size() - batch))
    node.fail("addresses of " + std::to_string(length) + " indices in a tensor of shape " + to_string(x) +
              (batch > 0 ? ", batches aside" : ""));
  for (size_t i = 0; i < batch; ++i)
    if (indices[i] != x[i]) node.fail("batches of " + to_string(x) + " and of indices of shape " + to_string(indices) + " differ");
  Shape y(indices.begin(), indices.end() - 1);
  const auto sliced = x.begin() + static_cast<std::ptrdiff_t>(batch) + static_cast<std::ptrdiff_t>(length);
  y.insert(y.end(), sliced, x.end());
  if (element_count(y) > 0 && element_count({x.begin() + static_cast<std::ptrdiff_t>(batch), sliced}) == 0)
    node.fail("indices are given, but the tensor of shape " + to_string(x) + " has no elements");
  return y;
}

void shape_of_gather_nd(ShapeContext& node) {
  const int64_t batch = node.attributes().integer("batch_dims", 0);
  if (batch < 0) node.fail("batch_dims of at least 0 expected; given " + std::to_string(batch));
  node.output(0, node.input(0).dtype, infer_gather_nd_shape(node, static_cast<size_t>(batch)));
}

// On an axis of size 1, every index selects index 0, even if it is out of range.
bool is_identity_gather(const Attributes& attributes, const TensorDesc& x, const TensorDesc&) {
  const int64_t axis = attributes.integer("axis", 0);
  return x.shape[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] == 1;
}

// With a different shape, the indices would repeat or omit rows.
bool is_identity_gather_elements(const Attributes& attributes, const TensorDesc& x, const TensorDesc& indices) {
  return x.shape == indices.shape && is_identity_gather(attributes, x, indices);
}

bool is_identity_gather_nd(const Attributes& attributes, const TensorDesc& x, const TensorDesc& indices) {
  const auto first = x.shape.begin() + attributes.integer("batch_dims", 0);
  return element_count({first, first + indices.shape.back()}) == 1;
}

void shape_of_scatter_nd(ShapeContext& node) {
  const Shape expected = infer_gather_nd_shape(node, 0);
  if (node.input(2).shape != expected)
    node.fail("updates of shape " + to_string(node.input(2).shape) + "; " + to_string(expected) + " expected");
  shape_like_input(node);
}

void shape_of_non_zero(ShapeContext& node) {
  const auto elements = node.host_values(0).as_double();
  const auto zeros = std::count(elements.begin(), elements.end(), 0.0);
  node.output(0, DType::int64, {node.input(0).rank(), static_cast<int64_t>(elements.size()) - zeros});
}

// The result has the elements of input 0 for which the condition is true, `count` along the axis.
void set_compressed_shape(ShapeContext& node, int64_t count) {
  const bool flat = !node.attributes().has("axis");
  Shape y = flat ? Shape{node.input(0).elements()} : node.input(0).shape;
  const size_t axis = flat ? 0 : normalize_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).rank() != 1 || node.input(1).shape[0] > y[axis])
    node.fail("a condition of shape " + to_string(node.input(1).shape) + " for an axis of " + std::to_string(y[axis]));
  y[axis] = count;
  node.output(0, node.input(0).dtype, y);
}

void shape_of_compress(ShapeContext& node) {
  const auto condition = node.host_integers(1);
  set_compressed_shape(node, static_cast<int64_t>(condition.size()) - std::count(condition.begin(), condition.end(), 0));
}

void shape_of_count_non_zero(ShapeContext& node) {
  node.output(0, DType::int32, {1});
  if (node.output_count() > 1) node.output(1, DType::int32, {count_non_zero_runs(node.input(0).elements()) + 1});
}

// The device has computed the count, which is input 1.
void shape_of_device_non_zero(ShapeContext& node) {
  node.output(0, DType::int64, {node.input(0).rank(), node.host_integer(1)});
}

void shape_of_device_compress(ShapeContext& node) {
  set_compressed_shape(node, node.host_integer(2));
}

// The update has the cache's shape, except for fewer rows on the axis.
void shape_of_tensor_scatter(ShapeContext& node) {
  const Shape& cache = node.input(0).shape;
  Shape update = node.input(1).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", -2), cache.size());
  if (axis == 0) node.fail("axis 0 is the batch's: another one expected");
  const bool fits = update.size() == cache.size() && update[axis] <= cache[axis];
  if (fits) update[axis] = cache[axis];
  if (!fits || update != cache)
    node.fail("an update of shape " + to_string(node.input(1).shape) + " for a cache of shape " + to_string(cache) + " on axis " +
              std::to_string(axis));
  check_vector(node, 2, cache[0], "write_indices");
  shape_like_input(node);
}

// x is not split along the indexed axis. On other axes it may be longer than the indices.
void split_gather_elements(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", 0), indices.rank());
  for (int axis = 0; axis < indices.rank(); ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis == indexed_axis ? kNotSplit : axis, axis}, {axis}, {}});
}

void split_gather_nd(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int batch = static_cast<int>(node.attributes->integer("batch_dims", 0)), index_rank = indices.rank() - 1;
  const int num_indexed_axes = batch + static_cast<int>(indices.shape.back());
  for (int axis = 0; axis < index_rank; ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis < batch ? axis : kNotSplit, axis}, {axis}, {}});
  for (int axis = num_indexed_axes; axis < x.rank(); ++axis)
    axes.push_back({x.shape[static_cast<size_t>(axis)], {axis, kNotSplit}, {index_rank + axis - num_indexed_axes}, {}});
}

// ScatterElements can be split along axes on which the updates are as long as the destination.
void split_scatter_elements(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", 0), x.rank());
  split_all_but(node, axes, [&](int axis) {
    return axis == indexed_axis || x.shape[static_cast<size_t>(axis)] != indices.shape[static_cast<size_t>(axis)];
  });
  for (SplitAxis& split : axes) split.inputs[1] = split.inputs[2] = split.inputs[kData];
}

// ScatterND can be split along axes that an index tuple does not index.
void split_scatter_nd(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int num_indexed_axes = static_cast<int>(indices.shape.back()), index_rank = indices.rank() - 1;
  split_all_but(node, axes, [&](int axis) { return axis < num_indexed_axes; });
  for (SplitAxis& split : axes) split.inputs[2] = index_rank + split.inputs[kData] - num_indexed_axes;
}

// Splits caches, updates and write indices.
void split_tensor_scatter(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", -2), node.input(kData).rank());
  split_all_but(node, axes, [&](int axis) { return axis == indexed_axis; });
  for (SplitAxis& split : axes) {
    split.inputs[1] = split.inputs[kData];
    if (split.inputs[kData] == 0 && node.has_input(2)) split.inputs[2] = 0;
  }
}

}  // namespace

OperatorRows gather_scatter_operators() {
  const ValueRole x = value("x", kAny, 'T'), indices = value("indices", kIndices), updates = value("updates", kAny, 'T');
  const std::vector<ValueRole> y{value("y", kAny)};
  const AttributeSchema axis = integer("axis", 0), reduction = choice("reduction", "none", {"none", "add", "mul", "max", "min"});
  return {{.name = "Gather",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {axis}, .min_rank = 1},
           .shape = shape_of_gather,
           .lower = lower_gather,
           .indices = axis_index_bounds,
           .is_identity = is_identity_gather,
           .evaluate = evaluate_gather},
          {.name = "GatherElements",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {axis}, .min_rank = 1},
           .shape = shape_of_gather_elements,
           .lower = lower_gather_elements,
           .indices = axis_index_bounds,
           .is_identity = is_identity_gather_elements,
           .split = split_gather_elements,
           .evaluate = evaluate_gather_elements},
          {.name = "GatherND",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {integer("batch_dims", 0)}, .min_rank = 1},
           .shape = shape_of_gather_nd,
           .lower = lower_gather_nd,
           .indices = index_tuple_bounds,
           .is_identity = is_identity_gather_nd,
           .split = split_gather_nd,
           .evaluate = evaluate_gather_nd},
          {.name = "ScatterElements",
           .skeleton = KernelKind::scatter,
           .schema = {.inputs = {x, indices, updates}, .outputs = y, .attributes = {axis, reduction}, .min_rank = 1},
           .shape = shape_of_scatter_elements,
           .lower = lower_scatter_elements,
           .indices = axis_index_bounds,
           .split = split_scatter_elements,
           .evaluate = evaluate_scatter_elements},
          {.name = "ScatterND",
           .skeleton = KernelKind::scatter,
           .schema = {.inputs = {x, indices, updates}, .outputs = y, .attributes = {reduction}, .min_rank = 1},
           .shape = shape_of_scatter_nd,
           .lower = lower_scatter_nd,
           .indices = index_tuple_bounds,
           .split = split_scatter_nd,
           .evaluate = evaluate_scatter_nd},
          {.name = "TensorScatter",
           .skeleton = KernelKind::scatter,
           .schema = {.inputs = {value("past_cache", kAny, 'T'), value("update", kAny, 'T'), optional_value("write_indices", kInt64)},
                      .outputs = {value("present_cache", kAny)},
                      .attributes = {integer("axis", -2), choice("mode", "linear", {"linear", "circular"})},
                      .min_rank = 2},
           .shape = shape_of_tensor_scatter,
           .lower = lower_tensor_scatter,
           .indices = cache_index_bounds,
           .strides = StrideSupport::any_in,
           .permuted_inputs = input_bits(1),
           .split = split_tensor_scatter},
          {.name = "Compress",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("x", kAny), value("condition", kBool)},
                      .outputs = y,
                      .attributes = {optional("axis", AttributeKind::integer)},
                      .min_rank = 1},
           .shape = shape_of_compress,
           .lower = lower_compress,
           .host_inputs = input_bits(1),
           .counted_operator = "pumice::Compress",
           .evaluate = evaluate_compress},
          // No lowering: the output shape depends on values, so the host evaluates it. A scalar has no axes: its result is [0, count].
          {.name = "NonZero",
           .skeleton = KernelKind::copy,
           .schema = {.inputs = {value("x", kAny)}, .outputs = {value("y", kInt64)}},
           .shape = shape_of_non_zero,
           .host_inputs = input_bits(0),
           .counted_operator = "pumice::NonZero",
           .evaluate = evaluate_non_zero},
          {.name = kCountNonZero,
           .skeleton = KernelKind::scan,
           .schema = {.inputs = {value("x", kAny)}, .outputs = {value("count", kInt32), value("starts", kInt32)}},
           .shape = shape_of_count_non_zero,
           .lower = lower_count_non_zero,
           .evaluate = evaluate_count_non_zero},
          {.name = "pumice::Compress",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("x", kAny), value("condition", kBool), value("count", kInt32), value("starts", kInt32)},
                      .outputs = y,
                      .attributes = {optional("axis", AttributeKind::integer)},
                      .min_rank = 1},
           .shape = shape_of_device_compress,
           .lower = lower_device_compress,
           .host_inputs = input_bits(2),
           .evaluate = evaluate_compress},
          {.name = "pumice::NonZero",
           .skeleton = KernelKind::index_map,
           .schema = {.inputs = {value("x", kAny), value("count", kInt32), value("starts", kInt32)}, .outputs = {value("y", kInt64)}},
           .shape = shape_of_device_non_zero,
           .lower = lower_non_zero,
           .host_inputs = input_bits(1),
           .evaluate = evaluate_non_zero}};
}

}  // namespace pumice
