#include "graph/passes/deferred_nodes.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {

bool has_deferred_nodes(const Graph& graph, const Subgraph& subgraph) {
  return std::ranges::any_of(subgraph.nodes, [&](size_t i) { return is_deferred(graph.nodes()[i]); });
}

void reject_deferred_node(const GraphNode& node) {
  throw UnsupportedError("node '" + node.name + "': " + std::string(node.op()) + " with a rank or size that the device computes");
}

std::shared_ptr<Graph> expand_deferred_nodes(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                             const std::vector<std::optional<HostTensor>>& values) {
  auto result = std::make_shared<Graph>(graph.name);
  std::vector<ValueId> new_ids(graph.values.size(), kAbsent);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphValue& value = graph.value(graph.inputs[i]);
    ValueId& id = new_ids[static_cast<size_t>(graph.inputs[i])];
    id = result->input(value.name, value.dtype, shapes[i], value.dimension_names,
                       {.owned = value.owned, .quantization = value.quantization});
  }
  // Adds constants first, so that they keep their names.
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].constant) new_ids[i] = result->constant(*graph.values[i].constant, graph.values[i].name);
  for (size_t i = 0; i < graph.inputs.size() && i < values.size(); ++i) {
    const ValueId input = graph.inputs[i];
    if (values[i]) new_ids[static_cast<size_t>(input)] = add_quantized_constant(*result, *values[i], graph.value(input).quantization);
  }
  const auto new_id = [&](ValueId id) { return id == kAbsent ? kAbsent : new_ids[static_cast<size_t>(id)]; };
  for (const ProgramNode& node : graph.nodes) {
    std::vector<ValueId> inputs;
    std::vector<const GraphValue*> old_outputs;
    for (const ValueId input : node.inputs) inputs.push_back(new_id(input));
    for (const ValueId output : node.outputs) old_outputs.push_back(&graph.value(output));
    const auto outputs = result->copy_node(node, std::move(inputs), old_outputs);
    for (size_t j = 0; j < outputs.size(); ++j) new_ids[static_cast<size_t>(node.outputs[j])] = outputs[j];
  }
  for (const auto& [name, value] : graph.outputs) result->output(name, new_id(value));
  result->finish();
  return result;
}

}  // namespace pumice
