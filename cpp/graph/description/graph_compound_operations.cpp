// Methods of Graph for compound operations.
#include <algorithm>

#include "core/error.h"
#include "graph/description/compound_operation.h"
#include "graph/description/graph.h"
#include "graph/description/shape_inference.h"
#include "graph/description/trial_tensor_desc.h"

namespace pumice {

static void check_output_count(const CompoundOperation& operation, const std::string& node, size_t actual, size_t requested) {
  if (requested == 1 || requested == actual) return;
  throw GraphError(
      node, std::string(operation.name()) + " has " + std::to_string(actual) + " outputs here; requested " + std::to_string(requested));
}

void Graph::truncate_to(size_t nodes, size_t values) {
  for (; nodes_.size() > nodes; nodes_.pop_back()) node_names_.erase(nodes_.back().name);
  for (; values_.size() > values; values_.pop_back()) {
    value_names_.erase(values_.back().name);
    generated_names_.erase(values_.back().name);
    for (auto& trial : trials_) trial->forget(static_cast<ValueId>(values_.size() - 1));
  }
}

// Names output i of an operation. The node that computes output 0 gets the name of the operation.
void Graph::name_output(size_t i, ValueId output, const std::string& name, std::string output_name) {
  GraphValue& value = values_[static_cast<size_t>(output)];
  if (i == 0) {
    GraphNode& node = nodes_[static_cast<size_t>(value.producer)];
    node_names_.erase(node.name);
    node_names_.insert(node.name = name);
  }
  value_names_.erase(value.name);
  generated_names_.erase(value.name);
  free_generated_name(output_name);
  if (!value_names_.insert(output_name).second) throw GraphError(name, "produces '" + output_name + "', but another value has this name");
  value.name = std::move(output_name);
}

std::vector<ValueId> Graph::add(const CompoundOperation& operation, std::vector<ValueId> inputs, const Attributes& attributes,
                                size_t outputs, std::string name, std::vector<std::string> output_names) {
  check_not_finished();
  return add_expanded_operation(operation, choose_node_name(operation.name(), std::move(name)), std::move(inputs), attributes, outputs,
                                output_names);
}

std::vector<ValueId> Graph::add_expanded_operation(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                                   const Attributes& attributes, size_t outputs,
                                                   const std::vector<std::string>& output_names) {
  if (node_names_.contains(name)) throw GraphError(name, "another node has this name");
  for (const ValueId input : inputs)
    if (input != kAbsent) check_value(input, name);
  const size_t nodes = nodes_.size(), values = values_.size();
  const bool exact = exact_;
  const auto undo = [&] {
    truncate_to(nodes, values);
    origin_.reset();
    exact_ = exact;
  };
  try {
    origin_ = std::make_shared<const NodeOrigin>(NodeOrigin{name, operation.name()});
    const auto results = operation.expand(*this, name, inputs, attributes);
    origin_.reset();
    check_output_count(operation, name, results.size(), outputs);
    check_output_names(name, results.size(), output_names);
    std::vector<ValueId> ids;
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string numbered = results.size() == 1 ? name + ":0" : name + ":" + std::to_string(i);
      name_output(i, results[i].value, name, i < output_names.size() && !output_names[i].empty() ? output_names[i] : numbered);
      values_[static_cast<size_t>(results[i].value)].quantization = results[i].quantization;
      ids.push_back(results[i].value);
    }
    return ids;
  } catch (const UnknownShapeError&) {
    undo();
  } catch (...) {
    undo();
    throw;
  }
  return add_deferred_operation(operation, name, std::move(inputs), attributes, outputs, output_names);
}

// Adds one deferred node, which is expanded when a program is bound.
std::vector<ValueId> Graph::add_deferred_operation(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                                   const Attributes& attributes, size_t outputs,
                                                   const std::vector<std::string>& output_names) {
  const auto expected = operation.infer_deferred_outputs(*this, name, inputs, attributes);
  check_output_count(operation, name, expected.size(), outputs);
  GraphNode node;
  node.name = name;
  node.row = &operation.deferred_row();
  node.compound = &operation;
  node.attributes = attributes;
  node.inputs = std::move(inputs);
  std::vector<GraphValue> output_values = name_outputs(node, expected.size(), output_names);
  for (size_t i = 0; i < output_values.size(); ++i)
    output_values[i].dtype = expected[i].dtype, output_values[i].quantization = expected[i].quantization;
  exact_ = false;
  return append(std::move(node), std::move(output_values));
}

ValueId Graph::add_check(std::shared_ptr<const NodeCheck> requirement, std::vector<ValueId> inputs, std::string name) {
  GraphNode node;
  node.name = std::move(name);
  node.row = find_operator(kRequire);
  node.inputs = std::move(inputs);
  node.origin = origin_;
  node.requirement = std::move(requirement);
  std::vector<GraphValue> output_values = name_outputs(node, 1, {});
  infer_node_outputs(node, output_values);
  output_values[0].dtype = value(node.inputs[0]).dtype;
  output_values[0].quantization = value(node.inputs[0]).quantization;
  return append(std::move(node), std::move(output_values))[0];
}

void Graph::refine_shape(ValueId id, const Shape& shape) {
  GraphValue& value = values_[static_cast<size_t>(id)];
  if (value.is_known() || (value.shape && value.shape->size() != shape.size())) return;
  Shape known = value.shape.value_or(shape);
  for (size_t axis = 0; axis < known.size(); ++axis)
    if (known[axis] == kUnknownSize) known[axis] = shape[axis];
  value.shape = known;
  for (size_t t = 0; t < trials_.size(); ++t) {
    Shape trial_sizes = make_trial_shape(known, t);
    const TensorDesc* before = trials_[t]->desc(id);
    for (size_t axis = 0; before && before->shape.size() == known.size() && axis < known.size(); ++axis)
      if (known[axis] == kUnknownSize) trial_sizes[axis] = before->shape[axis];
    if (before && before->shape == trial_sizes) continue;
    trials_[t]->forget(id);
    set_trial_desc(*trials_[t], id, value.dtype, trial_sizes, t);
  }
}

const HostTensor* Graph::elements(ValueId id) const {
  if (id == kAbsent) return nullptr;
  if (const auto& constant = value(id).constant) return &*constant;
  return exact_ && !trials_.empty() ? trials_[0]->host_elements(id) : nullptr;
}

std::vector<ValueId> Graph::copy_node(const GraphNode& node, std::vector<ValueId> inputs, const std::vector<const GraphValue*>& outputs) {
  std::vector<std::string> output_names;
  for (const GraphValue* output : outputs) output_names.push_back(output->name);
  if (is_deferred(node))
    return add_expanded_operation(*node.compound, node.name, std::move(inputs), node.attributes, node.outputs.size(), output_names);
  GraphNode copy = node;
  copy.inputs = std::move(inputs);
  copy.outputs.clear();
  choose_node_name(copy.op(), copy.name);
  std::vector<GraphValue> output_values = name_outputs(copy, node.outputs.size(), output_names);
  infer_node_outputs(copy, output_values);
  for (size_t i = 0; i < output_values.size(); ++i) output_values[i].quantization = outputs[i]->quantization;
  return append(std::move(copy), std::move(output_values));
}

}  // namespace pumice
