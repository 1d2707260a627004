#include "graph/shape_inference.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "graph/nnapi/requirement.h"
#include "operators/host_evaluate.h"

namespace pumice {
namespace {

// What an unknown size is tried with: multiples of 32 pass through a network's halvings; the first axis is most often the batch.
constexpr int64_t kTrialSizes[kTrials] = {96, 160, 2, 0}, kTrialBatches[kTrials] = {2, 3, 5, 0};

template <typename T>
T& slot(std::vector<T>& values, ValueId value) {
  const auto at = static_cast<size_t>(value);
  if (at >= values.size()) values.resize(std::max(at + 1, values.size() * 2));
  return values[at];
}

template <typename T>
const T* find(const std::vector<std::optional<T>>& values, ValueId value) {
  const auto at = static_cast<size_t>(value);
  return value == kAbsent || at >= values.size() || !values[at] ? nullptr : &*values[at];
}

}  // namespace

Shape trial_shape(const Shape& shape, size_t trial) {
  Shape sizes = shape;
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] == kUnknownSize) sizes[axis] = axis == 0 ? kTrialBatches[trial] : kTrialSizes[trial];
  return sizes;
}

std::optional<Shape> common_shape(const std::array<const TensorDesc*, kTrials>& trials) {
  if (!trials[0] || !trials[1] || trials[0]->rank() != trials[1]->rank()) return {};
  Shape shape = trials[0]->shape;
  for (const TensorDesc* other : trials)
    for (size_t axis = 0; axis < shape.size() && other && other->rank() == trials[0]->rank(); ++axis)
      if (trials[0]->shape[axis] != other->shape[axis]) shape[axis] = kUnknownSize;
  return shape;
}

void ShapeInference::set(ValueId value, TensorDesc desc) {
  slot(descs_, value) = std::move(desc);
}

void ShapeInference::set_host(ValueId value, HostTensor host) {
  slot(hosts_, value) = std::move(host);
}

void ShapeInference::set_constant(ValueId value, const HostTensor& host) {
  slot(constants_, value) = &host;
}

void ShapeInference::reserve(size_t values) {
  descs_.resize(values), hosts_.resize(values), constants_.resize(values);
}

void ShapeInference::forget(ValueId value) {
  slot(descs_, value).reset();
  slot(hosts_, value).reset();
  slot(constants_, value) = nullptr;
}

void ShapeInference::pack() {
  for (auto& desc : descs_)
    if (desc && !desc->is_packed()) desc->strides = packed_strides(desc->shape);
}

ShapeInference::Known ShapeInference::take(ValueId value) {
  return {std::exchange(slot(descs_, value), std::nullopt), std::exchange(slot(hosts_, value), std::nullopt)};
}

bool ShapeInference::is_still(ValueId value, const Known& known) const {
  const auto at = static_cast<size_t>(value);
  if (descs_[at] != known.desc || hosts_[at].has_value() != known.host.has_value()) return false;
  return !known.host || same_elements(*hosts_[at], *known.host);
}

TensorDesc* ShapeInference::mutable_desc(ValueId value) {
  return const_cast<TensorDesc*>(desc(value));
}

const TensorDesc* ShapeInference::desc(ValueId value) const {
  return find(descs_, value);
}

const HostTensor* ShapeInference::host(ValueId value) const {
  const auto at = static_cast<size_t>(value);
  if (value != kAbsent && at < constants_.size() && constants_[at]) return constants_[at];
  return find(hosts_, value);
}

namespace {

// What it throws names the node that the caller knows.
template <typename Rule>
auto told_of_origin(const GraphNode& node, Rule&& rule) {
  try {
    return rule();
  } catch (const GraphError& error) {
    if (!node.origin) throw;
    throw GraphError(node.origin->node, std::string(node.origin->op) + ": " + error.what(), error.rule);
  }
}

}  // namespace

void ShapeInference::check(const GraphNode& node) const {
  if (!node.requirement) return;
  std::vector<const TensorDesc*> inputs;
  std::vector<const HostTensor*> hosts;
  for (const ValueId input : node.inputs) inputs.push_back(desc(input)), hosts.push_back(host(input));
  nnapi::check(*node.requirement, inputs, hosts);
}

bool ShapeInference::run(const GraphNode& node) {
  if (node.requirement) {
    const TensorDesc* given = desc(node.inputs[0]);
    if (given) set(node.outputs[0], TensorDesc(given->dtype, given->shape));
    return given != nullptr;
  }
  std::vector<const TensorDesc*> inputs(node.inputs.size());
  std::vector<const HostTensor*> hosts(node.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = desc(node.inputs[i]);
    hosts[i] = host(node.inputs[i]);
    if (!inputs[i] && node.inputs[i] != kAbsent) return false;
  }
  ShapeContext context(node.name, node.attributes, std::move(inputs), std::move(hosts), node.outputs.size());
  told_of_origin(node, [&] { find_outputs(*node.row, context); });
  auto outputs = context.take_outputs();
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kAbsent && outputs[i]) set(node.outputs[i], std::move(*outputs[i]));
  return true;
}

bool ShapeInference::evaluate(const GraphNode& node, int64_t most_elements) {
  if (node.requirement) {
    const HostTensor* given = host(node.inputs[0]);
    if (given) set_host(node.outputs[0], *given);
    return given != nullptr;
  }
  std::vector<HostTensor> described(node.inputs.size());
  std::vector<const HostTensor*> inputs(node.inputs.size());
  const bool shapes_alone = reads_shapes_alone(*node.row);
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = host(node.inputs[i]);
    if (inputs[i] || node.inputs[i] == kAbsent) continue;
    const TensorDesc* known = desc(node.inputs[i]);
    if (!shapes_alone || !known) return false;
    described[i].desc = *known;
    inputs[i] = &described[i];
  }
  for (const ValueId output : node.outputs) {
    const TensorDesc* known = desc(output);
    if (output != kAbsent && (!known || known->elements() > most_elements)) return false;
  }
  auto results = told_of_origin(node, [&] { return evaluate_on_host(*node.row, node.name, node.attributes, inputs); });
  if (!results) return false;
  for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
    if (node.outputs[i] == kAbsent) continue;
    set(node.outputs[i], (*results)[i].desc);
    set_host(node.outputs[i], std::move((*results)[i]));
  }
  return true;
}

}  // namespace pumice
