#include "graph/passes/program_graph.h"

#include <algorithm>

#include "operators/table/precision.h"

namespace pumice {

bool keeps_bits(const OperatorRow& row) {
  return row.skeleton == Skeleton::view || row.skeleton == Skeleton::index_map || row.skeleton == Skeleton::copy;
}

bool is_host_input(const ProgramNode& node, size_t input) {
  return has_bit(node.row->host_inputs, input);
}

GraphPart whole(const Graph& graph) {
  GraphPart part{graph.name(), {}, graph.inputs(), {}, {}, {}};
  for (size_t i = 0; i < graph.nodes().size(); ++i) part.nodes.push_back(i);
  return part;
}

ProgramGraph::ProgramGraph(const Graph& graph, const GraphPart& part, const ProgramOptions& options)
    : name(part.name), host_outputs(part.host_outputs), entering(part.entering), leaving(part.leaving) {
  float_dtype = dtype_of_precision(options.precision);
  deterministic = options.deterministic;
  measured = options.measured;
  nodes.reserve(part.nodes.size());
  report.reserve(part.nodes.size());
  values.reserve(std::min(graph.values().size(), 3 * part.nodes.size()));  // a part may be a small piece of a large graph
  std::vector<ValueId> own(graph.values().size(), kAbsent);                // for each value of the graph, its id here
  const auto take = [&](ValueId id) {
    if (id == kAbsent) return kAbsent;
    ValueId& known = own[static_cast<size_t>(id)];
    if (known == kAbsent) known = add_value(graph.value(id));
    return known;
  };
  for (const ValueId id : part.inputs) {
    inputs.push_back(take(id));
    made_inputs.push_back(graph.value(id).producer >= 0 || graph.value(id).assumed);
    value(inputs.back()).producer = -1;
  }
  for (const size_t i : part.nodes) {
    ProgramNode& node = nodes.emplace_back(graph.nodes()[i], static_cast<uint32_t>(report.size()));
    for (auto* ids : {&node.inputs, &node.outputs}) std::ranges::transform(*ids, ids->begin(), take);
    const auto wanted = [&](const std::string& one) { return options.float32_nodes.contains(part.prefix + one); };
    const bool is_float32 = wanted(node.name) || (node.origin && wanted(node.origin->node));
    const bool is_user = node.row && node.row->skeleton == Skeleton::user;  // user-defined operator
    report.push_back(
        {.node = node.name, .op = is_user ? node.attributes.text("operator") : std::string(node.op()), .is_float32 = is_float32});
  }
  for (const ValueId id : part.outputs) outputs.emplace_back(graph.value(id).name, take(id));
  if (part.outputs.empty())
    for (const auto& [output, id] : graph.outputs()) outputs.emplace_back(output, take(id));
}

ValueId ProgramGraph::add_value(GraphValue made) {
  values.push_back(std::move(made));
  return static_cast<ValueId>(values.size() - 1);
}

void ProgramGraph::erase_nodes(const std::vector<bool>& gone) {
  size_t next = 0;
  std::erase_if(nodes, [&](const ProgramNode&) { return gone[next++]; });
}

std::vector<uint32_t> ProgramGraph::uses() const {
  std::vector<uint32_t> counts(values.size(), 0);
  for (const ProgramNode& node : nodes)
    for (const ValueId input : node.inputs)
      if (input != kAbsent) ++counts[static_cast<size_t>(input)];
  for (const auto& [output, value_id] : outputs) ++counts[static_cast<size_t>(value_id)];
  return counts;
}

}  // namespace pumice
