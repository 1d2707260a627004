#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "operators/host/host_node.h"
#include "operators/index/lowerings.h"
#include "operators/reduction/non_zero.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

int64_t normalize_index(const HostNode& node, int64_t index_value, int64_t size) {
  const int64_t index = index_value < 0 ? index_value + size : index_value;
  if (index < 0 || index >= size)
    throw GraphError(std::string(node.name), "index " + std::to_string(index_value) + " of an axis of " + std::to_string(size));
  return index;
}

// Offsets of the elements that the indices select, in row-major order of the indices.
using Offsets = std::vector<int64_t>;

Offsets compute_element_offsets(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const size_t axis = node.get_axis(0, shape);
  Strides strides = packed_strides(shape);
  const int64_t stride = strides[axis];
  strides[axis] = 0;
  const auto indices = node.get_integers(1);
  Offsets offsets(indices.size());
  for_each_index(node.input(1).desc.shape, strides, [&](int64_t i, int64_t offset) {
    const auto at = static_cast<size_t>(i);
    offsets[at] = offset + normalize_index(node, indices[at], shape[axis]) * stride;
  });
  return offsets;
}

// Returns the offset of the slice that each index tuple selects, and the number of elements per slice.
std::pair<Offsets, int64_t> compute_slice_offsets(const HostNode& node, size_t batch) {
  const Shape &shape = node.input(0).desc.shape, &index_shape = node.input(1).desc.shape;
  const auto length = static_cast<size_t>(index_shape.back());
  const Strides strides = packed_strides(shape);
  const auto indices = node.get_integers(1);
  const int64_t in_batch = element_count(index_shape, batch, index_shape.size() - 1), stride = element_count(shape, batch, shape.size());
  Offsets offsets(indices.size() / length);
  for (size_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = static_cast<int64_t>(i) / in_batch * stride;
    for (size_t k = 0; k < length; ++k) offsets[i] += normalize_index(node, indices[i * length + k], shape[batch + k]) * strides[batch + k];
  }
  return {offsets, element_count(shape, batch + length, shape.size())};
}

HostResults gather_at_offsets(const HostNode& node, const Offsets& offsets, int64_t inner = 1) {
  HostTensorWriter writer(node.outputs[0]);
  const size_t size = writer.element_bytes(), bytes = static_cast<size_t>(inner) * size;
  for (size_t i = 0; i < offsets.size() && bytes > 0; ++i)
    std::memcpy(writer.at(static_cast<int64_t>(i) * inner), node.input(0).data + static_cast<size_t>(offsets[i]) * size, bytes);
  return make_single_output(writer.take());
}

template <typename T>
T apply_reduction(std::string_view reduction, T a, T b) {
  if (reduction == "add") return a + b;
  if (reduction == "mul") return a * b;
  if (reduction == "max") return a > b || a != a ? a : b;
  return a < b || a != a ? a : b;
}

template <typename T>
HostResults scatter_at_offsets(const HostNode& node, const Offsets& offsets, int64_t inner) {
  const std::string reduction = node.attributes.text("reduction", "none");
  auto elements = read_elements<T>(node.input(0));
  const auto updates = read_elements<T>(node.input(2));
  for (size_t i = 0; i < updates.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    T& element = elements[static_cast<size_t>(offsets[static_cast<size_t>(at / inner)] + at % inner)];
    element = reduction == "none" ? updates[i] : apply_reduction(reduction, element, updates[i]);
  }
  HostTensorWriter writer(node.outputs[0]);
  for (size_t i = 0; i < elements.size(); ++i) writer.store(static_cast<int64_t>(i), elements[i]);
  return make_single_output(writer.take());
}

HostResults scatter_at_offsets(const HostNode& node, const Offsets& offsets, int64_t inner = 1) {
  return is_float(node.outputs[0].dtype) ? scatter_at_offsets<double>(node, offsets, inner)
                                         : scatter_at_offsets<int64_t>(node, offsets, inner);
}

}  // namespace

HostResults evaluate_gather(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const size_t axis = node.get_axis(0, shape);
  const auto indices = node.get_integers(1);
  const int64_t outer = element_count(shape, 0, axis), inner = element_count(shape, axis + 1, shape.size());
  Offsets offsets;
  for (int64_t i = 0; i < outer; ++i)
    for (const int64_t index_value : indices)
      offsets.push_back((i * shape[axis] + normalize_index(node, index_value, shape[axis])) * inner);
  return gather_at_offsets(node, offsets, inner);
}

HostResults evaluate_gather_elements(const HostNode& node) {
  return gather_at_offsets(node, compute_element_offsets(node));
}

HostResults evaluate_gather_nd(const HostNode& node) {
  const auto [offsets, inner] = compute_slice_offsets(node, static_cast<size_t>(node.attributes.integer("batch_dims", 0)));
  return gather_at_offsets(node, offsets, inner);
}

HostResults evaluate_scatter_elements(const HostNode& node) {
  return scatter_at_offsets(node, compute_element_offsets(node));
}

HostResults evaluate_scatter_nd(const HostNode& node) {
  const auto [offsets, inner] = compute_slice_offsets(node, 0);
  return scatter_at_offsets(node, offsets, inner);
}

HostResults evaluate_constant_of_shape(const HostNode& node) {
  HostTensorWriter writer(node.outputs[0]);  // zero-initialised
  if (const HostTensor* value = node.attributes.tensor("value"))
    for (int64_t i = 0; i < node.outputs[0].elements(); ++i) std::memcpy(writer.at(i), value->data, writer.element_bytes());
  return make_single_output(writer.take());
}

HostResults evaluate_one_hot(const HostNode& node) {
  const Shape& shape = node.outputs[0].shape;
  const size_t axis = node.get_axis(-1, shape);
  const int64_t inner = packed_strides(shape)[axis], depth = shape[axis];
  const auto indices = node.get_integers(0);
  HostTensorWriter writer(node.outputs[0]);
  const size_t size = writer.element_bytes();
  for (int64_t i = 0; i < node.outputs[0].elements(); ++i) {
    const int64_t row = i / inner, index = indices[static_cast<size_t>(row / depth * inner + i % inner)];
    const bool hot = (index < 0 ? index + depth : index) == row % depth;
    std::memcpy(writer.at(i), node.input(2).data + (hot ? size : 0), size);
  }
  return make_single_output(writer.take());
}

HostResults evaluate_trilu(const HostNode& node) {
  const Shape& shape = node.outputs[0].shape;
  const int64_t columns = shape.back(), rows = shape[shape.size() - 2], k = node.has(1) ? node.get_integers(1)[0] : 0;
  const bool upper = node.attributes.integer("upper") != 0;
  HostTensorWriter writer(node.outputs[0]);
  const size_t size = writer.element_bytes();
  for (int64_t i = 0; i < node.outputs[0].elements(); ++i) {
    const int64_t column = i % columns, row = i / columns % rows;
    if (upper ? column - row >= k : column - row <= k) std::memcpy(writer.at(i), node.input(0).data + static_cast<size_t>(i) * size, size);
  }
  return make_single_output(writer.take());
}

HostResults evaluate_tile(const HostNode& node) {
  const Shape &x_shape = node.input(0).desc.shape, &y_shape = node.outputs[0].shape;
  const Strides packed = packed_strides(x_shape);
  if (node.outputs[0].elements() == 0) return make_single_output(HostTensorWriter(node.outputs[0]).take());
  Shape shape;
  Strides strides;
  for (size_t axis = 0; axis < y_shape.size(); ++axis) {
    shape.insert(shape.end(), {y_shape[axis] / x_shape[axis], x_shape[axis]});
    strides.insert(strides.end(), {0, packed[axis]});
  }
  Offsets offsets(static_cast<size_t>(node.outputs[0].elements()));
  for_each_index(shape, strides, [&](int64_t i, int64_t offset) { offsets[static_cast<size_t>(i)] = offset; });
  return gather_at_offsets(node, offsets);
}

HostResults evaluate_non_zero(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const auto elements = node.input(0).as_double();
  const int64_t count = node.outputs[0].shape[1];
  if (std::ranges::count_if(elements, [](double element) { return element != 0; }) != count)
    return {};  // the assumed count differs from the number of nonzero elements
  const Strides strides = packed_strides(shape);
  HostTensorWriter writer(node.outputs[0]);
  int64_t column = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] == 0) continue;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      writer.store(static_cast<int64_t>(axis) * count + column, static_cast<int64_t>(i) / strides[axis] % shape[axis]);
    ++column;
  }
  return make_single_output(writer.take());
}

HostResults evaluate_count_non_zero(const HostNode& node) {
  const auto elements = node.input(0).as_double();
  HostTensorWriter count(node.outputs[0]), starts(node.outputs[1]);
  int64_t found = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (i % static_cast<size_t>(kNonZeroRun) == 0) starts.store(static_cast<int64_t>(i) / kNonZeroRun, found);
    found += elements[i] != 0;
  }
  starts.store(node.outputs[1].elements() - 1, found);
  count.store(0, found);
  HostResults results(std::in_place);
  results->push_back(count.take());
  results->push_back(starts.take());
  return results;
}

HostResults evaluate_compress(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const bool flat = !node.attributes.has("axis");
  const size_t axis = flat ? 0 : node.get_axis(0, shape);
  const int64_t size = flat ? node.input(0).desc.elements() : shape[axis], inner = flat ? 1 : packed_strides(shape)[axis];
  const auto condition = node.get_integers(1);
  Offsets offsets;
  for (int64_t i = 0; i < node.input(0).desc.elements() / std::max<int64_t>(size * inner, 1); ++i)
    for (size_t k = 0; k < condition.size(); ++k)
      if (condition[k] != 0) offsets.push_back((i * size + static_cast<int64_t>(k)) * inner);
  if (static_cast<int64_t>(offsets.size()) * inner != node.outputs[0].elements())
    return {};  // the assumed count differs from the number of true conditions
  return gather_at_offsets(node, offsets, inner);
}

}  // namespace pumice
