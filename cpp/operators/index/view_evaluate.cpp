// Host evaluation of shapes, constants, ranges and operators that move elements.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "operators/geometry/slice_geometry.h"
#include "operators/host/host_arithmetic.h"
#include "operators/index/lowerings.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

HostTensor make_integer_tensor(const TensorDesc& desc, const std::vector<int64_t>& values) {
  HostTensorWriter writer(desc);
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return writer.take();
}

// Returns first + i * step as the device computes it: integers wrap, and for floats of up to 32 bits each operation rounds to float32.
int64_t compute_range_element(int64_t first, int64_t step, int64_t i, bool) {
  return static_cast<int64_t>(static_cast<uint64_t>(first) + static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
}
double compute_range_element(double first, double step, int64_t i, bool rounds_to_fp32) {
  const auto rounded = [&](double value) { return rounds_to_fp32 ? static_cast<double>(static_cast<float>(value)) : value; };
  return rounded(first + rounded(static_cast<double>(i) * step));
}

// Evaluates Range. It must be fast per element: at load, models with unknown sizes are evaluated with assumed sizes of up to a thousand.
template <typename T>
HostTensor evaluate_range_elements(const HostNode& node) {
  const T first = read_elements<T>(node.input(0)).at(0), step = read_elements<T>(node.input(2)).at(0);
  HostTensorWriter writer(node.outputs[0]);
  const bool rounds_to_fp32 = computes_in_fp32(node);
  for (int64_t i = 0; i < node.outputs[0].elements(); ++i) writer.store(i, compute_range_element(first, step, i, rounds_to_fp32));
  return writer.take();
}

}  // namespace

HostResults evaluate_view(const HostNode& node) {
  return make_single_output({node.outputs[0], node.input(0).owner, node.input(0).data});
}

HostResults evaluate_shape(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t start = node.attributes.integer("start", 0);
  const auto first = static_cast<std::ptrdiff_t>(std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank));
  return make_single_output(
      make_integer_tensor(node.outputs[0], {shape.begin() + first, shape.begin() + first + node.outputs[0].elements()}));
}

HostResults evaluate_size(const HostNode& node) {
  return make_single_output(make_integer_tensor(node.outputs[0], {node.input(0).desc.elements()}));
}

HostResults evaluate_position(const HostNode& node) {
  const int64_t requested = node.get_integers(0).at(0), length = node.get_integers(1).at(0);
  const int64_t max_position = length - (node.attributes.integer("past") != 0 ? 0 : 1);
  if ((requested < -length || requested > max_position) && !node.sizes_assumed)
    throw GraphError(std::string(node.name),
                     "expected a position in a sequence of " + std::to_string(length) + ", given " + std::to_string(requested));
  return make_single_output(make_integer_tensor(
      node.outputs[0], {std::clamp<int64_t>(requested < 0 ? requested + length : requested, 0, std::max<int64_t>(max_position, 0))}));
}

HostResults evaluate_distinct_axes(const HostNode& node) {
  std::vector<int64_t> axes;
  const int64_t rank = node.get_integers(1).at(0);
  for (const int64_t declared_axis : node.get_integers(0)) {
    const int64_t axis = declared_axis < 0 ? declared_axis + rank : declared_axis;
    if (std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }
  return make_single_output(make_integer_tensor(node.outputs[0], axes));
}

HostResults evaluate_constant(const HostNode& node) {
  const Attributes& attributes = node.attributes;
  if (const HostTensor* tensor = attributes.tensor("value")) return make_single_output(*tensor);
  if (attributes.has("value_int")) return make_single_output(make_integer_tensor(node.outputs[0], {attributes.integer("value_int")}));
  if (attributes.has("value_ints")) return make_single_output(make_integer_tensor(node.outputs[0], attributes.integers("value_ints")));
  const auto values =
      attributes.has("value_float") ? std::vector<double>{attributes.real("value_float")} : attributes.reals("value_floats");
  HostTensorWriter writer(node.outputs[0]);
  for (size_t i = 0; i < values.size(); ++i) writer.store(static_cast<int64_t>(i), values[i]);
  return make_single_output(writer.take());
}

static HostResults transpose_elements(const HostNode& node, const std::vector<int64_t>& perm) {
  const Strides packed = packed_strides(node.input(0).desc.shape);
  Strides strides(packed.rbegin(), packed.rend());
  for (size_t i = 0; i < perm.size(); ++i)
    strides[i] = packed[static_cast<size_t>(perm[i] < 0 ? perm[i] + static_cast<int64_t>(packed.size()) : perm[i])];
  return make_single_output(gather_elements(node.input(0), node.outputs[0], strides, 0));
}

HostResults evaluate_transpose(const HostNode& node) {
  return transpose_elements(node, node.attributes.integers("perm"));
}

HostResults evaluate_transpose_by(const HostNode& node) {
  return transpose_elements(node, node.get_integers(1));
}

HostResults evaluate_slice(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const auto slices =
      compute_slice_axes(node.name, shape, node.get_integers(1), node.get_integers(2), node.get_integers(3), node.get_integers(4));
  Strides strides = packed_strides(shape);
  int64_t first = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    first += slices[axis].start * strides[axis];
    strides[axis] *= slices[axis].step;
  }
  return make_single_output(gather_elements(node.input(0), node.outputs[0], strides, first));
}

HostResults evaluate_expand(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  return make_single_output(
      gather_elements(node.input(0), node.outputs[0], compute_broadcast_strides(shape, packed_strides(shape), node.outputs[0].shape), 0));
}

HostResults evaluate_split(const HostNode& node) {
  const Shape& shape = node.input(0).desc.shape;
  const Strides strides = packed_strides(shape);
  const size_t axis = node.get_axis(0, shape);
  std::vector<HostTensor> pieces;
  int64_t first = 0;
  for (const TensorDesc& desc : node.outputs) {
    pieces.push_back(gather_elements(node.input(0), desc, strides, first));
    first += desc.shape[axis] * strides[axis];
  }
  return pieces;
}

HostResults evaluate_concat(const HostNode& node) {
  const Shape& shape = node.outputs[0].shape;
  const size_t axis = node.get_axis(0, shape);
  const int64_t outer = element_count(shape, 0, axis), row = element_count(shape, axis, shape.size());
  HostTensorWriter writer(node.outputs[0]);
  int64_t begin = 0;
  for (const HostTensor* input : node.inputs) {
    const int64_t chunk = outer == 0 ? 0 : input->desc.elements() / outer;
    const size_t bytes = static_cast<size_t>(chunk) * writer.element_bytes();
    for (int64_t i = 0; i < outer && bytes > 0; ++i)
      std::memcpy(writer.at(i * row + begin), input->data + static_cast<size_t>(i) * bytes, bytes);
    begin += chunk;
  }
  return make_single_output(writer.take());
}

HostResults evaluate_range(const HostNode& node) {
  return make_single_output(is_float(node.outputs[0].dtype) ? evaluate_range_elements<double>(node)
                                                            : evaluate_range_elements<int64_t>(node));
}

}  // namespace pumice
