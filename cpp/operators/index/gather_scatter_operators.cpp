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

void infer_gather_shape(ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const auto axis = x.begin() + static_cast<std::ptrdiff_t>(normalize_axis(node, node.attributes().integer("axis", 0), x.size()));
  if (*axis == 0 && node.input(1).elements() > 0) node.fail("indices are given, but the axis that they index has no elements");
  Shape y(x.begin(), axis);
  y.insert(y.end(), indices.begin(), indices.end());
  y.insert(y.end(), axis + 1, x.end());
  node.output(0, node.input(0).dtype, y);
}

// Checks the indices of GatherElements and ScatterElements: same rank as x, and at most as long as x on all axes except `axis`.
void check_element_indices(const ShapeContext& node) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", 0), x.size());
  if (indices.size() != x.size())
    node.fail("indices of shape " + to_string(indices) + " for a tensor of shape " + to_string(x) + "; expected the same rank");
  for (size_t i = 0; i < x.size(); ++i)
    if (i != axis && indices[i] > x[i])
      node.fail("indices of shape " + to_string(indices) + " are larger than " + to_string(x) + " on axis " + std::to_string(i));
  if (x[axis] == 0 && node.input(1).elements() > 0) node.fail("indices are given, but the axis that they index has no elements");
}

void infer_gather_elements_shape(ShapeContext& node) {
  check_element_indices(node);
  node.output(0, node.input(0).dtype, node.input(1).shape);
}

void infer_scatter_elements_shape(ShapeContext& node) {
  check_element_indices(node);
  if (node.input(2).shape != node.input(1).shape)
    node.fail("updates of shape " + to_string(node.input(2).shape) + " for indices of shape " + to_string(node.input(1).shape));
  infer_shape_like_input(node);
}

// Returns the GatherND output shape: the indices' shape without the tuple axis, then the axes of x that a tuple does not index.
Shape compute_gather_nd_shape(const ShapeContext& node, size_t batch) {
  const Shape &x = node.input(0).shape, &indices = node.input(1).shape;
  if (indices.empty()) node.fail("expected indices with at least one axis, the last of which holds an address; given a scalar");
  if (batch >= std::min(x.size(), indices.size()))
    node.fail("batch_dims is " + std::to_string(batch) + ", which is too many for " + to_string(x) + " and indices of shape " +
              to_string(indices));
  const int64_t length = indices.back();
  if (length < 1 || length > static_cast<int64_t>(x.size() - batch))
    node.fail("addresses of " + std::to_string(length) + " indices in a tensor of shape " + to_string(x) +
              (batch > 0 ? ", not counting batches" : ""));
  for (size_t i = 0; i < batch; ++i)
    if (indices[i] != x[i]) node.fail("batches of " + to_string(x) + " and of indices of shape " + to_string(indices) + " differ");
  Shape y(indices.begin(), indices.end() - 1);
  const auto sliced = x.begin() + static_cast<std::ptrdiff_t>(batch) + static_cast<std::ptrdiff_t>(length);
  y.insert(y.end(), sliced, x.end());
  if (element_count(y) > 0 && element_count({x.begin() + static_cast<std::ptrdiff_t>(batch), sliced}) == 0)
    node.fail("indices are given, but the tensor of shape " + to_string(x) + " has no elements");
  return y;
}

void infer_gather_nd_shape(ShapeContext& node) {
  const int64_t batch = node.attributes().integer("batch_dims", 0);
  if (batch < 0) node.fail("expected non-negative batch_dims; given " + std::to_string(batch));
  node.output(0, node.input(0).dtype, compute_gather_nd_shape(node, static_cast<size_t>(batch)));
}

// Whether a Gather returns x unchanged: its axis has size 1, on which every index selects element 0.
bool is_identity_gather(const Attributes& attributes, const TensorDesc& x, const TensorDesc&) {
  const int64_t axis = attributes.integer("axis", 0);
  return x.shape[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] == 1;
}

// Whether a GatherElements returns x unchanged. The shapes must be equal, because otherwise the indices repeat or omit rows.
bool is_identity_gather_elements(const Attributes& attributes, const TensorDesc& x, const TensorDesc& indices) {
  return x.shape == indices.shape && is_identity_gather(attributes, x, indices);
}

bool is_identity_gather_nd(const Attributes& attributes, const TensorDesc& x, const TensorDesc& indices) {
  const auto first = x.shape.begin() + attributes.integer("batch_dims", 0);
  return element_count({first, first + indices.shape.back()}) == 1;
}

void infer_scatter_nd_shape(ShapeContext& node) {
  const Shape expected = compute_gather_nd_shape(node, 0);
  if (node.input(2).shape != expected)
    node.fail("updates of shape " + to_string(node.input(2).shape) + "; expected " + to_string(expected));
  infer_shape_like_input(node);
}

void infer_non_zero_shape(ShapeContext& node) {
  const auto elements = node.get_host_values(0).as_double();
  const auto zeros = std::count(elements.begin(), elements.end(), 0.0);
  node.output(0, DType::int64, {node.input(0).rank(), static_cast<int64_t>(elements.size()) - zeros});
}

// Sets the output shape of Compress, which has `count` selected elements along the axis.
void set_compressed_shape(ShapeContext& node, int64_t count) {
  const bool flat = !node.attributes().has("axis");
  Shape y = flat ? Shape{node.input(0).elements()} : node.input(0).shape;
  const size_t axis = flat ? 0 : normalize_axis(node, node.attributes().integer("axis"), y.size());
  if (node.input(1).rank() != 1 || node.input(1).shape[0] > y[axis])
    node.fail("a condition of shape " + to_string(node.input(1).shape) + " for an axis of " + std::to_string(y[axis]));
  y[axis] = count;
  node.output(0, node.input(0).dtype, y);
}

void infer_compress_shape(ShapeContext& node) {
  const auto condition = node.get_host_integers(1);
  set_compressed_shape(node, static_cast<int64_t>(condition.size()) - std::count(condition.begin(), condition.end(), 0));
}

void infer_count_non_zero_shape(ShapeContext& node) {
  node.output(0, DType::int32, {1});
  if (node.output_count() > 1) node.output(1, DType::int32, {count_non_zero_runs(node.input(0).elements()) + 1});
}

// Input 1 is the count of nonzero elements, which the device has computed.
void infer_device_non_zero_shape(ShapeContext& node) {
  node.output(0, DType::int64, {node.input(0).rank(), node.get_host_integer(1)});
}

void infer_device_compress_shape(ShapeContext& node) {
  set_compressed_shape(node, node.get_host_integer(2));
}

// The update must have the cache's shape, except that it may have fewer rows along the axis.
void infer_tensor_scatter_shape(ShapeContext& node) {
  const Shape& cache = node.input(0).shape;
  Shape update = node.input(1).shape;
  const size_t axis = normalize_axis(node, node.attributes().integer("axis", -2), cache.size());
  if (axis == 0) node.fail("axis 0 is the batch axis: expected another axis");
  const bool fits = update.size() == cache.size() && update[axis] <= cache[axis];
  if (fits) update[axis] = cache[axis];
  if (!fits || update != cache)
    node.fail("an update of shape " + to_string(node.input(1).shape) + " for a cache of shape " + to_string(cache) + " on axis " +
              std::to_string(axis));
  check_vector(node, 2, cache[0], "write_indices");
  infer_shape_like_input(node);
}

// GatherElements can be split along all axes except the indexed one. On these axes, x may be longer than the indices.
void append_gather_elements_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", 0), indices.rank());
  for (int axis = 0; axis < indices.rank(); ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis == indexed_axis ? kNotSplit : axis, axis}, {axis}, {}});
}

void append_gather_nd_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int batch = static_cast<int>(node.attributes->integer("batch_dims", 0)), index_rank = indices.rank() - 1;
  const int num_indexed_axes = batch + static_cast<int>(indices.shape.back());
  for (int axis = 0; axis < index_rank; ++axis)
    axes.push_back({indices.shape[static_cast<size_t>(axis)], {axis < batch ? axis : kNotSplit, axis}, {axis}, {}});
  for (int axis = num_indexed_axes; axis < x.rank(); ++axis)
    axes.push_back({x.shape[static_cast<size_t>(axis)], {axis, kNotSplit}, {index_rank + axis - num_indexed_axes}, {}});
}

// ScatterElements can be split along axes on which the updates are as long as the destination.
void append_scatter_elements_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc &x = node.input(kData), &indices = node.input(1);
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", 0), x.rank());
  append_axes_except(node, axes, [&](int axis) {
    return axis == indexed_axis || x.shape[static_cast<size_t>(axis)] != indices.shape[static_cast<size_t>(axis)];
  });
  for (SplitAxis& split : axes) split.inputs[1] = split.inputs[2] = split.inputs[kData];
}

// ScatterND can be split along the axes that the index tuples do not index.
void append_scatter_nd_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const TensorDesc& indices = node.input(1);
  const int num_indexed_axes = static_cast<int>(indices.shape.back()), index_rank = indices.rank() - 1;
  append_axes_except(node, axes, [&](int axis) { return axis < num_indexed_axes; });
  for (SplitAxis& split : axes) split.inputs[2] = index_rank + split.inputs[kData] - num_indexed_axes;
}

// TensorScatter can be split along axes that cache and update share; the write indices are split with the batch.
void append_tensor_scatter_split_axes(const LowerContext& node, std::vector<SplitAxis>& axes) {
  const int indexed_axis = normalize_axis(node.attributes->integer("axis", -2), node.input(kData).rank());
  append_axes_except(node, axes, [&](int axis) { return axis == indexed_axis; });
  for (SplitAxis& split : axes) {
    split.inputs[1] = split.inputs[kData];
    if (split.inputs[kData] == 0 && node.has_input(2)) split.inputs[2] = 0;
  }
}

}  // namespace

OperatorRows define_gather_scatter_operators() {
  const ValueRole x = value_role("x", kAny, 'T'), indices = value_role("indices", kIndices), updates = value_role("updates", kAny, 'T');
  const std::vector<ValueRole> y{value_role("y", kAny)};
  const AttributeSchema axis = integer_attribute("axis", 0),
                        reduction = choice_attribute("reduction", "none", {"none", "add", "mul", "max", "min"});
  return {
      {.name = "Gather",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {axis}, .min_rank = 1},
       .shape = infer_gather_shape,
       .lower = lower_gather,
       .indices = get_axis_index_bounds,
       .alias = {.is_identity = is_identity_gather},
       .evaluate = evaluate_gather},
      {.name = "GatherElements",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {axis}, .min_rank = 1},
       .shape = infer_gather_elements_shape,
       .lower = lower_gather_elements,
       .indices = get_axis_index_bounds,
       .alias = {.is_identity = is_identity_gather_elements},
       .split = append_gather_elements_split_axes,
       .evaluate = evaluate_gather_elements},
      {.name = "GatherND",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {x, indices}, .outputs = y, .attributes = {integer_attribute("batch_dims", 0)}, .min_rank = 1},
       .shape = infer_gather_nd_shape,
       .lower = lower_gather_nd,
       .indices = get_index_tuple_bounds,
       .alias = {.is_identity = is_identity_gather_nd},
       .split = append_gather_nd_split_axes,
       .evaluate = evaluate_gather_nd},
      {.name = "ScatterElements",
       .skeleton = KernelKind::scatter,
       .schema = {.inputs = {x, indices, updates}, .outputs = y, .attributes = {axis, reduction}, .min_rank = 1},
       .shape = infer_scatter_elements_shape,
       .lower = lower_scatter_elements,
       .indices = get_axis_index_bounds,
       .split = append_scatter_elements_split_axes,
       .evaluate = evaluate_scatter_elements},
      {.name = "ScatterND",
       .skeleton = KernelKind::scatter,
       .schema = {.inputs = {x, indices, updates}, .outputs = y, .attributes = {reduction}, .min_rank = 1},
       .shape = infer_scatter_nd_shape,
       .lower = lower_scatter_nd,
       .indices = get_index_tuple_bounds,
       .split = append_scatter_nd_split_axes,
       .evaluate = evaluate_scatter_nd},
      {.name = "TensorScatter",
       .skeleton = KernelKind::scatter,
       .schema = {.inputs = {value_role("past_cache", kAny, 'T'), value_role("update", kAny, 'T'), optional_role("write_indices", kInt64)},
                  .outputs = {value_role("present_cache", kAny)},
                  .attributes = {integer_attribute("axis", -2), choice_attribute("mode", "linear", {"linear", "circular"})},
                  .min_rank = 2},
       .shape = infer_tensor_scatter_shape,
       .lower = lower_tensor_scatter,
       .indices = get_cache_index_bounds,
       .strides = StrideSupport::any_in,
       .layout = {.permuted_inputs = make_input_mask(1)},
       .split = append_tensor_scatter_split_axes},
      {.name = "Compress",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("x", kAny), value_role("condition", kBool)},
                  .outputs = y,
                  .attributes = {optional_attribute("axis", AttributeKind::integer)},
                  .min_rank = 1},
       .shape = infer_compress_shape,
       .lower = lower_compress,
       .host_inputs = make_input_mask(1),
       .counted_operator = "pumice::Compress",
       .evaluate = evaluate_compress},
      // NonZero has no lowering: its output shape depends on values, so the host evaluates it. For a scalar, the result is [0, count].
      {.name = "NonZero",
       .skeleton = KernelKind::copy,
       .schema = {.inputs = {value_role("x", kAny)}, .outputs = {value_role("y", kInt64)}},
       .shape = infer_non_zero_shape,
       .host_inputs = make_input_mask(0),
       .counted_operator = "pumice::NonZero",
       .evaluate = evaluate_non_zero},
      {.name = kCountNonZero,
       .skeleton = KernelKind::scan,
       .schema = {.inputs = {value_role("x", kAny)}, .outputs = {value_role("count", kInt32), value_role("starts", kInt32)}},
       .shape = infer_count_non_zero_shape,
       .lower = lower_count_non_zero,
       .evaluate = evaluate_count_non_zero},
      {.name = "pumice::Compress",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("x", kAny), value_role("condition", kBool), value_role("count", kInt32),
                             value_role("starts", kInt32)},
                  .outputs = y,
                  .attributes = {optional_attribute("axis", AttributeKind::integer)},
                  .min_rank = 1},
       .shape = infer_device_compress_shape,
       .lower = lower_device_compress,
       .host_inputs = make_input_mask(2),
       .evaluate = evaluate_compress},
      {.name = "pumice::NonZero",
       .skeleton = KernelKind::index_map,
       .schema = {.inputs = {value_role("x", kAny), value_role("count", kInt32), value_role("starts", kInt32)},
                  .outputs = {value_role("y", kInt64)}},
       .shape = infer_device_non_zero_shape,
       .lower = lower_non_zero,
       .host_inputs = make_input_mask(1),
       .evaluate = evaluate_non_zero}};
}

}  // namespace pumice
