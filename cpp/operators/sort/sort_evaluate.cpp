// Host evaluation of sorting.
#include <algorithm>
#include <numeric>

#include "operators/host/host_arithmetic.h"
#include "operators/sort/lowerings.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

using Offsets = std::vector<int64_t>;

// Returns the stable argsort of the elements at the given offsets. NaN sorts last, or first if `largest`.
template <typename T>
Offsets argsort(const std::vector<T>& elements, const Offsets& axis, bool largest) {
  Offsets order(axis.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int64_t i) { return elements[static_cast<size_t>(axis[static_cast<size_t>(i)])]; };
  const auto is_nan = [](T v) { return v != v; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const T a = largest ? value(j) : value(i), b = largest ? value(i) : value(j);
    return is_nan(b) ? !is_nan(a) : a < b;
  });
  return order;
}

template <typename T>
HostResults evaluate_topk_as(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const size_t axis = node.get_axis(-1, shape);
  const int64_t size = shape[axis], k = node.outputs[0].shape[axis], inner = packed_strides(shape)[axis];
  const auto elements = read_elements<T>(node.input(0));
  HostTensorWriter values(node.outputs[0]), indices(node.outputs[1]);
  for (int64_t row = 0; size > 0 && row < static_cast<int64_t>(elements.size()) / size; ++row) {
    Offsets offsets(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) offsets[static_cast<size_t>(i)] = (row / inner * size + i) * inner + row % inner;
    const Offsets order = argsort(elements, offsets, node.attributes.integer("largest") != 0);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t target = (row / inner * k + i) * inner + row % inner, from = order[static_cast<size_t>(i)];
      values.store(target, elements[static_cast<size_t>(offsets[static_cast<size_t>(from)])]);
      indices.store(target, from);
    }
  }
  std::vector<HostTensor> results;
  results.push_back(values.take());
  results.push_back(indices.take());
  return results;
}

}  // namespace

HostResults evaluate_topk(const HostNode& node) {
  return is_float(node.input(0).desc.dtype) ? evaluate_topk_as<double>(node) : evaluate_topk_as<int64_t>(node);
}

}  // namespace pumice
