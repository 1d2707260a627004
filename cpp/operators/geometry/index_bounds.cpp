#include "operators/geometry/index_bounds.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/number_format.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {
namespace {

// Returns the size of an axis; negative axes count from the end. Returns kUnknownSize if the axis does not exist: shape inference reports
// that.
int64_t get_axis_size(const Shape& shape, int64_t axis) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? kUnknownSize : shape[static_cast<size_t>(axis)];
}

const Shape& get_input_shape(const std::vector<Shape>& inputs, size_t i) {
  static const Shape absent;
  return i < inputs.size() ? inputs[i] : absent;
}

// Returns the bounds of an input with sequence lengths: 0 to `size`, inclusive.
IndexBounds make_length_bounds(size_t input, int64_t size) {
  return {input, {size < 0 ? kUnknownSize : size + 1}, false};
}

}  // namespace

std::vector<int64_t> unravel_index(const Shape& shape, int64_t position) {
  std::vector<int64_t> coordinates(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; position /= std::max<int64_t>(shape[axis], 1))
    coordinates[axis] = position % std::max<int64_t>(shape[axis], 1);
  return coordinates;
}

std::string describe_index_error(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index) {
  const int64_t size = bounds.sizes[static_cast<size_t>(position) % bounds.sizes.size()];
  const std::string lower = std::to_string(bounds.from_end ? -size : 0);
  const std::string expected = size == kUnlimited ? "0 or more" : lower + " to " + std::to_string(size - 1);
  return index + " at " + to_string(unravel_index(shape, position)) + "; expected " + expected;
}

namespace {

// Throws GraphError for the first out-of-range index. NaN is always out of range.
template <typename T>
void check_index_values(std::string_view node, const IndexBounds& bounds, const Shape& shape, const std::vector<T>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t size = bounds.sizes[i % bounds.sizes.size()];
    if (size < 0 || (values[i] < static_cast<T>(size) && values[i] >= static_cast<T>(bounds.from_end ? -size : 0))) continue;
    std::string number;
    if constexpr (std::is_floating_point_v<T>)
      number = format_general(values[i]);
    else
      number = std::to_string(values[i]);
    throw GraphError(std::string(node), "input " + std::to_string(bounds.input) + " has the index " +
                                            describe_index_error(bounds, shape, static_cast<int64_t>(i), number));
  }
}

template <typename T>
OutOfBoundsIndices count_out_of_bounds_indices(const IndexBounds& bounds, std::span<const T> values) {
  OutOfBoundsIndices result;
  for (size_t i = 0, k = 0; i < values.size(); ++i, k = k + 1 == bounds.sizes.size() ? 0 : k + 1) {
    const int64_t size = bounds.sizes[k], index = values[i];
    if (size < 0 || (index < size && index >= (bounds.from_end ? -size : 0))) continue;
    if (result.count++ == 0) result.position = static_cast<int64_t>(i), result.index = index;
  }
  return result;
}

}  // namespace

OutOfBoundsIndices find_out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices) {
  if (!bounds.has_limits()) return {};
  const auto count = static_cast<size_t>(desc.elements());
  if (desc.dtype == DType::int64) return count_out_of_bounds_indices(bounds, std::span(reinterpret_cast<const int64_t*>(indices), count));
  return count_out_of_bounds_indices(bounds, std::span(reinterpret_cast<const int32_t*>(indices), count));
}

void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices) {
  if (!bounds.has_limits()) return;
  if (is_float(indices.desc.dtype)) return check_index_values(node, bounds, indices.desc.shape, indices.as_double());
  check_index_values(node, bounds, indices.desc.shape, indices.as_int64());
}

IndexBounds get_axis_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return {1, {get_axis_size(get_input_shape(inputs, 0), attributes.integer("axis", 0))}};
}

IndexBounds get_index_tuple_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  const Shape &x = get_input_shape(inputs, 0), &indices = get_input_shape(inputs, 1);
  IndexBounds bounds{1, {}};
  const int64_t batch = attributes.integer("batch_dims", 0), length = indices.empty() ? 0 : indices.back();
  for (int64_t k = 0; k < length && batch >= 0 && batch + k < static_cast<int64_t>(x.size()); ++k)
    bounds.sizes.push_back(x[static_cast<size_t>(batch + k)]);
  return bounds;
}

IndexBounds get_cache_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  if (attributes.text("mode", "linear") != "linear") return {2, {}, false};  // circular mode wraps around
  const int64_t axis = attributes.integer("axis", -2), size = get_axis_size(get_input_shape(inputs, 0), axis),
                rows = get_axis_size(get_input_shape(inputs, 1), axis);
  return {2, {size < 0 || rows < 0 ? kUnknownSize : std::max<int64_t>(size - rows, 0) + 1}, false};
}

IndexBounds get_leading_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return {0, {get_axis_size(get_input_shape(inputs, 1), attributes.integer("axis", 0))}, false};
}

IndexBounds get_position_id_bounds(const Attributes&, const std::vector<Shape>& inputs) {
  return {3, {get_axis_size(get_input_shape(inputs, 1), 0)}, false};
}

IndexBounds get_batch_index_bounds(const Attributes&, const std::vector<Shape>& inputs) {
  return {2, {get_axis_size(get_input_shape(inputs, 0), 0)}, false};
}

IndexBounds get_roi_batch_index_bounds(const Attributes&, const std::vector<Shape>& inputs) {
  return {1, {get_axis_size(get_input_shape(inputs, 0), 0), kNotAnIndex, kNotAnIndex, kNotAnIndex, kNotAnIndex}, false};
}

IndexBounds get_nonnegative_index_bounds(const Attributes&, const std::vector<Shape>&) {
  return {2, {kUnlimited}, false};
}

IndexBounds get_unpool_index_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  Shape pooled = get_input_shape(inputs, 0);
  if (pooled.size() < 3 || std::ranges::any_of(pooled, [](int64_t size) { return size < 0; })) return {1, {kUnknownSize}, false};
  const auto sizes = compute_unpool_geometry(attributes, "", pooled).output;
  std::ranges::copy(sizes, pooled.begin() + 2);
  return {1, {element_count(pooled)}, false};
}

IndexBounds get_slice_begin_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  const Shape& x = get_input_shape(inputs, 1);
  const auto slice_sizes = attributes.integers("size");
  if (x.size() != slice_sizes.size() || x.empty()) return {0, {kUnknownSize}, false};
  IndexBounds bounds{0, {}, false};
  for (size_t axis = 0; axis < x.size(); ++axis)
    bounds.sizes.push_back(x[axis] < 0 || slice_sizes[axis] > x[axis] ? kUnknownSize : x[axis] - slice_sizes[axis] + 1);
  return bounds;
}

IndexBounds get_sequence_length_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return make_length_bounds(1, get_axis_size(get_input_shape(inputs, 0), attributes.integer("time_axis", 0)));
}

IndexBounds get_key_length_bounds(const Attributes&, const std::vector<Shape>& inputs) {
  return make_length_bounds(6, get_axis_size(get_input_shape(inputs, 1), -2));
}

IndexBounds get_rnn_length_bounds(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return make_length_bounds(4, get_axis_size(get_input_shape(inputs, 0), attributes.integer("layout", 0) != 0 ? 1 : 0));
}

}  // namespace pumice
