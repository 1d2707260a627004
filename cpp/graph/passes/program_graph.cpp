#include "graph/passes/program_graph.h"

#include <algorithm>

#include "operators/table/precision_support.h"

namespace pumice {

bool moves_elements_unchanged(const OperatorRow& row) {
  return row.skeleton == KernelKind::view || row.skeleton == KernelKind::index_map || row.skeleton == KernelKind::copy;
}

bool is_host_input(const ProgramNode& node, size_t input) {
  return has_bit(node.row->host_inputs, input);
}

Subgraph make_whole_subgraph(const Graph& graph) {
  Subgraph subgraph{graph.name(), {}, graph.inputs(), {}, {}, {}};
  for (size_t i = 0; i < graph.nodes().size(); ++i) subgraph.nodes.push_back(i);
  return subgraph;
}

ProgramGraph::ProgramGraph(const Graph& graph, const Subgraph& subgraph, const ProgramOptions& options)
    : name(subgraph.name),
      host_outputs(subgraph.host_outputs),
      boundary_inputs(subgraph.boundary_inputs),
      boundary_outputs(subgraph.boundary_outputs) {
  float_dtype = get_precision_dtype(options.precision);
  deterministic = options.deterministic;
  measured = options.measured;
  nodes.reserve(subgraph.nodes.size());
  report.reserve(subgraph.nodes.size());
  values.reserve(std::min(graph.values().size(), 3 * subgraph.nodes.size()));  // a subgraph may be a small part of a large graph
  std::vector<ValueId> new_ids(graph.values().size(), kAbsent);                // maps values of the graph to values of this program graph
  const auto map_id = [&](ValueId id) {
    if (id == kAbsent) return kAbsent;
    ValueId& known = new_ids[static_cast<size_t>(id)];
    if (known == kAbsent) known = add_value(graph.value(id));
    return known;
  };
  for (const ValueId id : subgraph.inputs) {
    inputs.push_back(map_id(id));
    dynamic_inputs.push_back(graph.value(id).producer >= 0 || graph.value(id).assumed);
    value(inputs.back()).producer = -1;
  }
  for (const size_t i : subgraph.nodes) {
    ProgramNode& node = nodes.emplace_back(graph.nodes()[i], static_cast<uint32_t>(report.size()));
    for (auto* ids : {&node.inputs, &node.outputs}) std::ranges::transform(*ids, ids->begin(), map_id);
    const auto is_requested = [&](const std::string& report_name) { return options.float32_nodes.contains(subgraph.prefix + report_name); };
    const bool fp32_requested = is_requested(node.name) || (node.origin && is_requested(node.origin->node));
    const bool is_user = node.row && node.row->skeleton == KernelKind::user;  // an operator defined by the caller
    report.push_back(
        {.node = node.name, .op = is_user ? node.attributes.text("operator") : std::string(node.op()), .fp32_requested = fp32_requested});
  }
  for (const ValueId id : subgraph.outputs) outputs.emplace_back(graph.value(id).name, map_id(id));
  if (subgraph.outputs.empty())
    for (const auto& [output, id] : graph.outputs()) outputs.emplace_back(output, map_id(id));
}

ValueId ProgramGraph::add_value(GraphValue new_value) {
  values.push_back(std::move(new_value));
  return static_cast<ValueId>(values.size() - 1);
}

void ProgramGraph::erase_nodes(const std::vector<bool>& removed) {
  size_t next = 0;
  std::erase_if(nodes, [&](const ProgramNode&) { return removed[next++]; });
}

std::vector<uint32_t> ProgramGraph::count_uses() const {
  std::vector<uint32_t> counts(values.size(), 0);
  for (const ProgramNode& node : nodes)
    for (const ValueId input : node.inputs)
      if (input != kAbsent) ++counts[static_cast<size_t>(input)];
  for (const auto& [output, value_id] : outputs) ++counts[static_cast<size_t>(value_id)];
  return counts;
}

}  // namespace pumice
