// Host evaluation of elementwise operators.
#include <algorithm>

#include "core/error.h"
#include "operators/elementwise/elementwise_expression.h"
#include "operators/elementwise/lowerings.h"
#include "operators/host/host_arithmetic.h"
#include "operators/table/host_tensor_access.h"

namespace pumice {
namespace {

// A broadcast operand: its elements and, for each output element, the index of the element to read.
template <typename T>
struct BroadcastOperand {
  std::vector<T> elements;
  std::vector<size_t> source_indices;
  T* value;  // the operand's variable in the expression
};

template <typename T>
HostTensor evaluate_elements(const HostNode& node, const Expression& expression) {
  const auto names = get_elementwise_input_names(node.row, node.inputs.size());
  const Shape& shape = node.outputs[0].shape;
  std::map<std::string, T> values;
  std::vector<BroadcastOperand<T>> operands;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (!node.has(k)) continue;
    BroadcastOperand<T> operand{read_elements<T>(node.input(k)), std::vector<size_t>(static_cast<size_t>(element_count(shape))),
                                &values[names[k]]};
    const Shape& input_shape = node.input(k).desc.shape;
    for_each_index(shape, compute_broadcast_strides(input_shape, packed_strides(input_shape), shape),
                   [&](int64_t i, int64_t offset) { operand.source_indices[static_cast<size_t>(i)] = static_cast<size_t>(offset); });
    operands.push_back(std::move(operand));
  }
  HostTensorWriter writer(node.outputs[0]);
  const bool rounds_to_fp32 = computes_in_fp32(node);
  for (int64_t i = 0; i < element_count(shape); ++i) {
    for (auto& operand : operands) *operand.value = operand.elements[operand.source_indices[static_cast<size_t>(i)]];
    writer.store(i, evaluate_element(expression, values, rounds_to_fp32));
  }
  return writer.take();
}

bool has_float_operand(const HostNode& node) {
  return is_float(node.outputs[0].dtype) ||
         std::any_of(node.inputs.begin(), node.inputs.end(), [](const HostTensor* input) { return input && is_float(input->desc.dtype); });
}

template <typename T>
HostTensor cast_elements(const HostNode& node) {
  const auto elements = read_elements<T>(node.input(0));
  HostTensorWriter writer(node.outputs[0]);
  for (size_t i = 0; i < elements.size(); ++i) writer.store(static_cast<int64_t>(i), elements[i]);
  return writer.take();
}

}  // namespace

HostResults evaluate_elementwise(const HostNode& node) {
  std::vector<bool> present;
  for (size_t i = 0; i < node.inputs.size(); ++i) present.push_back(node.has(i));
  const Expression expression = make_elementwise_expression(node.row, node.attributes, present);
  return make_single_output(has_float_operand(node) ? evaluate_elements<double>(node, expression)
                                                    : evaluate_elements<int64_t>(node, expression));
}

HostResults evaluate_cast(const HostNode& node) {
  return make_single_output(is_float(node.input(0).desc.dtype) ? cast_elements<double>(node) : cast_elements<int64_t>(node));
}

}  // namespace pumice
