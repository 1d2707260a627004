#include <algorithm>

#include "core/error.h"
#include "operators/table/operator_table.h"
#include "operators/table/row_builders.h"

namespace pumice {

ShapeContext::ShapeContext(std::string_view node, const Attributes& attributes, std::vector<const TensorDesc*> inputs,
                           std::vector<const HostTensor*> hosts, size_t output_count)
    : node_(node), attributes_(attributes), inputs_(std::move(inputs)), hosts_(std::move(hosts)), outputs_(output_count) {}

const TensorDesc& ShapeContext::input(size_t i) const {
  if (!has(i)) fail("input " + std::to_string(i) + " is missing");
  return *inputs_[i];
}

const HostTensor* ShapeContext::host_tensor(size_t i) const {
  return i < hosts_.size() ? hosts_[i] : nullptr;
}

const HostTensor& ShapeContext::get_host_values(size_t i) const {
  const HostTensor* tensor = host_tensor(i);
  if (!tensor) fail("the values of input " + std::to_string(i) + " must be known on the host to find the output's shape");
  return *tensor;
}

std::vector<int64_t> ShapeContext::get_host_integers(size_t i) const {
  return get_host_values(i).as_int64();
}

const HostTensor& ShapeContext::get_host_scalar_tensor(size_t i) const {
  const HostTensor& tensor = get_host_values(i);
  if (tensor.desc.elements() == 0) fail("input " + std::to_string(i) + ": expected a number; given " + to_string(tensor.desc.shape));
  return tensor;
}

double ShapeContext::get_host_real(size_t i) const {
  return get_host_scalar_tensor(i).as_double()[0];
}

int64_t ShapeContext::get_host_integer(size_t i) const {
  return get_host_scalar_tensor(i).as_int64()[0];
}

void ShapeContext::output(size_t i, DType dtype, Shape shape) {
  if (i >= outputs_.size()) return;  // an omitted optional output
  try {
    outputs_[i].emplace(dtype, std::move(shape));
  } catch (const GraphError& error) {
    throw GraphError(std::string(node_), "output " + std::to_string(i) + ": " + error.what(), error.rule);
  }
}

void ShapeContext::fail(const std::string& message) const {
  throw GraphError(std::string(node_), message);
}

size_t normalize_axis(const ShapeContext& node, int64_t axis, size_t rank, bool end) {
  const auto size = static_cast<int64_t>(rank);
  if (axis < -size || axis >= size + (end ? 1 : 0))
    node.fail("a tensor of rank " + std::to_string(rank) + " has no axis " + std::to_string(axis));
  return static_cast<size_t>(axis < 0 ? axis + size : axis);
}

std::vector<size_t> normalize_axes(const ShapeContext& node, const std::vector<int64_t>& axes, size_t rank) {
  std::vector<size_t> result;
  for (const int64_t axis : axes) {
    result.push_back(normalize_axis(node, axis, rank));
    if (std::count(result.begin(), result.end(), result.back()) > 1) node.fail("axis " + std::to_string(axis) + " is given twice");
  }
  return result;
}

void check_vector(const ShapeContext& node, size_t input, int64_t length, std::string_view label) {
  if (node.has(input) && node.input(input).shape != Shape{length})
    node.fail(std::string(label) + " (input " + std::to_string(input) + "): expected shape [" + std::to_string(length) + "]; given " +
              to_string(node.input(input).shape));
}

Shape broadcast_inputs(const ShapeContext& node) {
  Shape shape;
  bool first = true;
  for (size_t i = 0; i < node.input_count(); ++i) {
    if (!node.has(i)) continue;
    try {
      shape = first ? node.input(i).shape : broadcast_shape(shape, node.input(i).shape);
    } catch (const GraphError& error) {
      node.fail(error.what());
    }
    first = false;
  }
  return shape;
}

void infer_shape_like_input(ShapeContext& node) {
  node.output(0, node.input(0).dtype, node.input(0).shape);
}

}  // namespace pumice
