// Host evaluation of reductions and running sums.
#include <algorithm>
#include <limits>

#include "operators/host/host_arithmetic.h"
#include "operators/reduction/lowerings.h"
#include "operators/reduction/reduce.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

template <typename T>
T get_initial_value(const ReductionFold& fold) {
  using Limits = std::numeric_limits<T>;
  switch (fold.start) {
    case FoldInitialValue::zero:
      return T{0};
    case FoldInitialValue::one:
      return T{1};
    case FoldInitialValue::lowest:
      return Limits::has_infinity ? -Limits::infinity() : Limits::min();
    case FoldInitialValue::highest:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  return {};
}

template <typename T>
HostResults reduce_elements(const HostNode& node) {
  const Expression step = Expression::parse(node.row.fold->step);
  const Shape& shape = node.input(0).desc.shape;
  auto axes = node.has(1) ? node.get_integers(1) : node.attributes.integers("axes");
  const bool all = axes.empty() && node.attributes.integer("noop_with_empty_axes", 0) == 0;
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const auto at = static_cast<int64_t>(axis), rank = static_cast<int64_t>(shape.size());
    const bool reduced = all || std::any_of(axes.begin(), axes.end(),
                                            [&](int64_t declared_axis) { return declared_axis == at || declared_axis + rank == at; });
    strides[axis] = reduced ? 0 : stride;
    if (!reduced) stride *= shape[axis];
  }
  const auto elements = read_elements<T>(node.input(0));
  std::vector<T> results(static_cast<size_t>(node.outputs[0].elements()), get_initial_value<T>(*node.row.fold));
  for_each_index(shape, strides, [&](int64_t i, int64_t offset) {
    T& result = results[static_cast<size_t>(offset)];
    result = step.evaluate(std::map<std::string, T>{{"s", result}, {"v", elements[static_cast<size_t>(i)]}});
  });
  HostTensorWriter writer(node.outputs[0]);
  for (size_t i = 0; i < results.size(); ++i) writer.store(static_cast<int64_t>(i), results[i]);
  return make_single_output(writer.take());
}

template <typename T>
HostTensor scan_elements(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const int64_t declared_axis = node.get_integers(1).at(0);
  const auto axis = static_cast<size_t>(declared_axis < 0 ? declared_axis + static_cast<int64_t>(shape.size()) : declared_axis);
  const bool exclusive = node.attributes.integer("exclusive", 0) != 0, backwards = node.attributes.integer("reverse", 0) != 0;
  const Expression step = Expression::parse(node.row.fold->step);
  const int64_t size = shape[axis], inner = packed_strides(shape)[axis];
  const auto elements = read_elements<T>(node.input(0));
  const bool rounds_to_fp32 = computes_in_fp32(node);
  HostTensorWriter writer(node.outputs[0]);
  for (int64_t row = 0; size > 0 && row < static_cast<int64_t>(elements.size()) / size; ++row) {
    T sum = get_initial_value<T>(*node.row.fold);
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = row / inner * size * inner + row % inner + (backwards ? size - 1 - k : k) * inner;
      if (exclusive) writer.store(at, sum);
      sum = evaluate_element(step, std::map<std::string, T>{{"s", sum}, {"v", elements[static_cast<size_t>(at)]}}, rounds_to_fp32);
      if (!exclusive) writer.store(at, sum);
    }
  }
  return writer.take();
}

}  // namespace

HostResults evaluate_reduce(const HostNode& node) {
  return is_float(node.input(0).desc.dtype) ? reduce_elements<double>(node) : reduce_elements<int64_t>(node);
}

HostResults evaluate_scan(const HostNode& node) {
  return make_single_output(is_float(node.input(0).desc.dtype) ? scan_elements<double>(node) : scan_elements<int64_t>(node));
}

}  // namespace pumice
