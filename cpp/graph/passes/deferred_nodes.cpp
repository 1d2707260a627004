#include "graph/passes/deferred_nodes.h"

#include <algorithm>

#include "core/error.h"

namespace pumice {

bool has_late(const Graph& graph, const GraphPart& part) {
  return std::ranges::any_of(part.nodes, [&](size_t i) { return is_late(graph.nodes()[i]); });
}

void refuse_late(const GraphNode& node) {
  throw UnsupportedError("node '" + node.name + "': " + std::string(node.op()) +
                         " on a rank or size that depends on what the device computes");
}

std::shared_ptr<Graph> expanded(const ProgramGraph& graph, const std::vector<std::optional<Shape>>& shapes,
                                const std::vector<std::optional<HostTensor>>& values) {
  auto made = std::make_shared<Graph>(graph.name);
  std::vector<ValueId> own(graph.values.size(), kAbsent);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphValue& value = graph.value(graph.inputs[i]);
    ValueId& id = own[static_cast<size_t>(graph.inputs[i])];
    id = made->input(value.name, value.dtype, shapes[i], value.dimension_names, {.owned = value.owned, .quantization = value.quantization});
  }
  // Constants first, to keep their names.
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (graph.values[i].constant) own[i] = made->constant(*graph.values[i].constant, graph.values[i].name);
  for (size_t i = 0; i < graph.inputs.size() && i < values.size(); ++i) {
    const ValueId input = graph.inputs[i];
    if (values[i]) own[static_cast<size_t>(input)] = quantized_constant(*made, *values[i], graph.value(input).quantization);
  }
  const auto taken = [&](ValueId id) { return id == kAbsent ? kAbsent : own[static_cast<size_t>(id)]; };
  for (const ProgramNode& node : graph.nodes) {
    std::vector<ValueId> inputs;
    std::vector<const GraphValue*> before;
    for (const ValueId input : node.inputs) inputs.push_back(taken(input));
    for (const ValueId output : node.outputs) before.push_back(&graph.value(output));
    const auto outputs = made->repeat(node, std::move(inputs), before);
    for (size_t j = 0; j < outputs.size(); ++j) own[static_cast<size_t>(node.outputs[j])] = outputs[j];
  }
  for (const auto& [name, value] : graph.outputs) made->output(name, taken(value));
  made->finish();
  return made;
}

}  // namespace pumice
