// What a Graph does for the operations of NNAPI: the parameters of quantized values, and nodes that stand for one operation.
#include <algorithm>

#include "core/error.h"
#include "graph/graph.h"
#include "graph/nnapi/operations.h"
#include "graph/shape_inference.h"

namespace pumice {

Quantization checked_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization given) {
  if (given == Quantization{}) return given;
  const auto fail = [&](const std::string& message) { throw GraphError(user, message + "; given " + to_string(given)); };
  if (given.scale.empty()) fail("a zero point or a channel axis without a scale");
  if (!is_integer(dtype) || bits(dtype) < 8 || bits(dtype) > 32) fail("a scale for elements of " + std::string(name(dtype)));
  if (given.channel_axis && !shape) fail("scales of channels for an unknown rank");
  Shape sizes = given.channel_axis ? *shape : Shape{};
  std::ranges::replace(sizes, kUnknownSize, std::ssize(given.scale));  // as many channels as it then has scales
  TensorDesc desc(dtype, std::move(sizes));
  desc.quantized(given);
  const int64_t zero = given.zero_point.value_or(0), sign = is_signed_integer(dtype) ? 1 : 0;
  const int64_t span = int64_t{1} << (bits(dtype) - sign);
  if (zero < -sign * span || zero >= span) fail("the zero point is no " + std::string(name(dtype)));
  desc.zero_point = zero;
  return desc;
}

void Graph::truncate(size_t nodes, size_t values) {
  for (; nodes_.size() > nodes; nodes_.pop_back()) node_names_.erase(nodes_.back().name);
  for (; values_.size() > values; values_.pop_back()) {
    value_names_.erase(values_.back().name);
    chosen_names_.erase(values_.back().name);
    for (auto& trial : trials_) trial->forget(static_cast<ValueId>(values_.size() - 1));
  }
}

// The node that makes output 0 has the operation's name.
void Graph::name_output(size_t i, ValueId output, const std::string& name, std::string output_name) {
  GraphValue& value = values_[static_cast<size_t>(output)];
  if (i == 0) {
    GraphNode& node = nodes_[static_cast<size_t>(value.producer)];
    node_names_.erase(node.name);
    node_names_.insert(node.name = name);
  }
  value_names_.erase(value.name);
  chosen_names_.erase(value.name);
  make_way(output_name);
  if (!value_names_.insert(output_name).second)
    throw GraphError(name, "makes '" + output_name + "', but there is another value of this name");
  value.name = std::move(output_name);
}

std::vector<ValueId> Graph::add_expanded(const nnapi::Operation& operation, const std::string& name, std::vector<ValueId> inputs,
                                         const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names) {
  if (node_names_.contains(name)) throw GraphError(name, "there is another node of this name");
  for (const ValueId input : inputs)
    if (input != kAbsent) check_value(input, name);
  const size_t nodes = nodes_.size(), values = values_.size();
  try {
    const auto made = nnapi::expand(*this, operation, name, std::move(inputs), attributes);
    if (outputs != 1 && outputs != made.size())
      throw GraphError(name, std::string(operation.name) + " has " + std::to_string(made.size()) + " outputs here; asked for " +
                                 std::to_string(outputs));
    std::vector<ValueId> ids;
    for (size_t i = 0; i < made.size(); ++i) {
      const std::string numbered = made.size() == 1 ? name + ":0" : name + ":" + std::to_string(i);
      name_output(i, made[i].value, name, i < output_names.size() && !output_names[i].empty() ? output_names[i] : numbered);
      values_[static_cast<size_t>(made[i].value)].quantization = made[i].quantization;
      ids.push_back(made[i].value);
    }
    return ids;
  } catch (...) {
    truncate(nodes, values);
    throw;
  }
}

}  // namespace pumice
