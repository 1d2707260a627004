#include "operators/host/host_evaluate.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "operators/host/host_node.h"

namespace pumice {
namespace {

using Inputs = std::span<const HostTensor* const>;

// Whether the tensor has values that int64, in which the host computes, cannot represent.
bool exceeds_int64(const HostTensor& tensor) {
  if (tensor.desc.dtype != DType::uint64) return false;
  const auto values = tensor.as_int64();
  return std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 0; });
}

// Returns the number of outputs of a node. For a Split it comes from its sizes (0 if they are not specified); optional outputs do not
// count.
size_t count_outputs(const OperatorRow& row, const Attributes& attributes, Inputs inputs) {
  const auto& roles = row.schema.outputs;
  if (!roles.back().variadic)
    return static_cast<size_t>(std::ranges::count_if(roles, [](const ValueRole& role) { return !role.optional; }));
  if (inputs.size() > 1 && inputs[1]) return static_cast<size_t>(inputs[1]->desc.elements());
  return static_cast<size_t>(std::clamp<int64_t>(attributes.integer("num_outputs", 0), 0, inputs[0]->desc.elements()));
}

// Runs shape inference. Returns the descriptions of the outputs.
std::vector<TensorDesc> infer_output_descs(const OperatorRow& row, std::string_view node, const Attributes& attributes, Inputs inputs,
                                           size_t count) {
  std::vector<const TensorDesc*> descs;
  for (const HostTensor* input : inputs) descs.push_back(input ? &input->desc : nullptr);
  ShapeContext context(node, attributes, descs, {inputs.begin(), inputs.end()}, count);
  row.shape(context);
  std::vector<TensorDesc> outputs;
  for (auto& desc : context.take_outputs()) outputs.push_back(std::move(desc.value()));
  return outputs;
}

}  // namespace

std::optional<std::vector<HostTensor>> evaluate_on_host(const OperatorRow& row, std::string_view node, const Attributes& attributes,
                                                        Inputs inputs, bool sizes_assumed, std::vector<TensorDesc> descs) {
  if (!row.evaluate) return {};
  const bool reads_values = !row.host.reads_only_shapes;
  for (const HostTensor* input : inputs)
    if (input && reads_values && ((!input->data && input->desc.elements() > 0) || is_low_bit(input->desc.dtype))) return {};
  for (const HostTensor* input : inputs)
    if (input && reads_values && exceeds_int64(*input)) return {};
  const size_t outputs = count_outputs(row, attributes, inputs);
  if (outputs == 0) return {};
  if (descs.size() != outputs) descs = infer_output_descs(row, node, attributes, inputs, outputs);
  const HostNode host_node{row, node, attributes, inputs, std::move(descs), sizes_assumed};
  for (const TensorDesc& output : host_node.outputs)
    if (is_low_bit(output.dtype)) return {};
  try {
    return row.evaluate(host_node);
  } catch (const GraphError&) {
    throw;
  } catch (const Error&) {
    return {};  // the result is undefined, as for an integer division by zero
  }
}

}  // namespace pumice
