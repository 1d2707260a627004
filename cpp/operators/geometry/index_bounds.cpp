#include "operators/geometry/index_bounds.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/number_format.h"
#include "operators/geometry/window_geometry.h"

namespace pumice {
namespace {

// Size of an axis, which may be negative. Unknown if the tensor has no such axis: the shape rule rejects that.
int64_t size_of(const Shape& shape, int64_t axis) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? kNotKnown : shape[static_cast<size_t>(axis)];
}

const Shape& shape_of(const std::vector<Shape>& inputs, size_t i) {
  static const Shape absent;
  return i < inputs.size() ? inputs[i] : absent;
}

// Bounds of sequence lengths: at most the size of the axis.
IndexBounds lengths(size_t input, int64_t size) {
  return {input, {size < 0 ? kNotKnown : size + 1}, false};
}

}  // namespace

std::vector<int64_t> element_places(const Shape& shape, int64_t position) {
  std::vector<int64_t> places(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; position /= std::max<int64_t>(shape[axis], 1))
    places[axis] = position % std::max<int64_t>(shape[axis], 1);
  return places;
}

std::string index_text(const IndexBounds& bounds, const Shape& shape, int64_t position, const std::string& index) {
  const int64_t size = bounds.sizes[static_cast<size_t>(position) % bounds.sizes.size()];
  const std::string least = std::to_string(bounds.from_end ? -size : 0);
  const std::string expected = size == kUnlimited ? "0 or more" : least + " to " + std::to_string(size - 1);
  return index + " at " + to_string(element_places(shape, position)) + "; expected " + expected;
}

namespace {

// Throws for the first out-of-range index; NaN is never in range.
template <typename T>
void check_numbers(std::string_view node, const IndexBounds& bounds, const Shape& shape, const std::vector<T>& given) {
  for (size_t i = 0; i < given.size(); ++i) {
    const int64_t size = bounds.sizes[i % bounds.sizes.size()];
    if (size < 0 || (given[i] < static_cast<T>(size) && given[i] >= static_cast<T>(bounds.from_end ? -size : 0))) continue;
    std::string number;
    if constexpr (std::is_floating_point_v<T>)
      number = general_text(given[i]);
    else
      number = std::to_string(given[i]);
    throw GraphError(std::string(node), "input " + std::to_string(bounds.input) + " has the index " +
                                            index_text(bounds, shape, static_cast<int64_t>(i), number));
  }
}

template <typename T>
OutOfBounds found_in(const IndexBounds& bounds, std::span<const T> given) {
  OutOfBounds found;
  for (size_t i = 0, k = 0; i < given.size(); ++i, k = k + 1 == bounds.sizes.size() ? 0 : k + 1) {
    const int64_t size = bounds.sizes[k], index = given[i];
    if (size < 0 || (index < size && index >= (bounds.from_end ? -size : 0))) continue;
    if (found.count++ == 0) found.position = static_cast<int64_t>(i), found.index = index;
  }
  return found;
}

}  // namespace

OutOfBounds out_of_bounds(const IndexBounds& bounds, const TensorDesc& desc, const std::byte* indices) {
  if (!bounds.any()) return {};
  const auto count = static_cast<size_t>(desc.elements());
  if (desc.dtype == DType::int64) return found_in(bounds, std::span(reinterpret_cast<const int64_t*>(indices), count));
  return found_in(bounds, std::span(reinterpret_cast<const int32_t*>(indices), count));
}

void check_indices(std::string_view node, const IndexBounds& bounds, const HostTensor& indices) {
  if (!bounds.any()) return;
  if (is_float(indices.desc.dtype)) return check_numbers(node, bounds, indices.desc.shape, indices.as_double());
  check_numbers(node, bounds, indices.desc.shape, indices.as_int64());
}

IndexBounds indices_of_axis(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return {1, {size_of(shape_of(inputs, 0), attributes.integer("axis", 0))}};
}

IndexBounds indices_of_rows(const Attributes& attributes, const std::vector<Shape>& inputs) {
  const Shape &x = shape_of(inputs, 0), &indices = shape_of(inputs, 1);
  IndexBounds bounds{1, {}};
  const int64_t batch = attributes.integer("batch_dims", 0), length = indices.empty() ? 0 : indices.back();
  for (int64_t k = 0; k < length && batch >= 0 && batch + k < static_cast<int64_t>(x.size()); ++k)
    bounds.sizes.push_back(x[static_cast<size_t>(batch + k)]);
  return bounds;
}

IndexBounds indices_of_cache(const Attributes& attributes, const std::vector<Shape>& inputs) {
  if (attributes.text("mode", "linear") != "linear") return {2, {}, false};  // circular mode wraps around
  const int64_t axis = attributes.integer("axis", -2), size = size_of(shape_of(inputs, 0), axis), rows = size_of(shape_of(inputs, 1), axis);
  return {2, {size < 0 || rows < 0 ? kNotKnown : std::max<int64_t>(size - rows, 0) + 1}, false};
}

IndexBounds indices_from_first(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return {0, {size_of(shape_of(inputs, 1), attributes.integer("axis", 0))}, false};
}

IndexBounds indices_of_places(const Attributes&, const std::vector<Shape>& inputs) {
  return {3, {size_of(shape_of(inputs, 1), 0)}, false};
}

IndexBounds indices_of_images(const Attributes&, const std::vector<Shape>& inputs) {
  return {2, {size_of(shape_of(inputs, 0), 0)}, false};
}

IndexBounds indices_of_boxes(const Attributes&, const std::vector<Shape>& inputs) {
  return {1, {size_of(shape_of(inputs, 0), 0), kNoIndex, kNoIndex, kNoIndex, kNoIndex}, false};
}

IndexBounds indices_of_runs(const Attributes&, const std::vector<Shape>&) {
  return {2, {kUnlimited}, false};
}

IndexBounds indices_of_pooled(const Attributes& attributes, const std::vector<Shape>& inputs) {
  Shape pooled = shape_of(inputs, 0);
  if (pooled.size() < 3 || std::ranges::any_of(pooled, [](int64_t size) { return size < 0; })) return {1, {kNotKnown}, false};
  const auto sizes = unpool_geometry(attributes, "", pooled).output;
  std::ranges::copy(sizes, pooled.begin() + 2);
  return {1, {element_count(pooled)}, false};
}

IndexBounds indices_of_begins(const Attributes& attributes, const std::vector<Shape>& inputs) {
  const Shape& x = shape_of(inputs, 1);
  const auto wanted = attributes.integers("size");
  if (x.size() != wanted.size() || x.empty()) return {0, {kNotKnown}, false};
  IndexBounds bounds{0, {}, false};
  for (size_t axis = 0; axis < x.size(); ++axis)
    bounds.sizes.push_back(x[axis] < 0 || wanted[axis] > x[axis] ? kNotKnown : x[axis] - wanted[axis] + 1);
  return bounds;
}

IndexBounds lengths_of_time(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return lengths(1, size_of(shape_of(inputs, 0), attributes.integer("time_axis", 0)));
}

IndexBounds lengths_of_keys(const Attributes&, const std::vector<Shape>& inputs) {
  return lengths(6, size_of(shape_of(inputs, 1), -2));
}

IndexBounds lengths_of_steps(const Attributes& attributes, const std::vector<Shape>& inputs) {
  return lengths(4, size_of(shape_of(inputs, 0), attributes.integer("layout", 0) != 0 ? 1 : 0));
}

}  // namespace pumice
