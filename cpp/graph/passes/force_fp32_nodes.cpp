#include "graph/passes/force_fp32_nodes.h"

#include <map>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

// Finds nodes by their names in reports, which begin with the name of the graph for nested graphs.
class NodeNameFinder {
 public:
  explicit NodeNameFinder(const std::set<std::string>& names) : names_(names) {}

  void visit_graph(const Graph& graph, const std::string& prefix, bool all) {
    for (const GraphNode& node : graph.nodes()) {
      bool is_requested = add_if_requested(prefix + node.name, all);
      if (node.origin) is_requested = add_if_requested(prefix + node.origin->node, all) || is_requested;
      if (!node.control) continue;
      visit_subgraph(*node.control->first, is_requested);
      visit_subgraph(*node.control->second, is_requested);
    }
  }

  std::set<std::string> found_names;

 private:
  // A nested graph that several nodes run is float32 if float32 is requested for any of these nodes.
  void visit_subgraph(const Graph& graph, bool all) {
    const auto [known, added] = visited_.try_emplace(&graph, all);
    if (!added && (known->second || !all)) return;
    known->second = all;
    visit_graph(graph, graph.name().empty() ? std::string() : graph.name() + "/", all);
  }

  bool add_if_requested(const std::string& name, bool all) {
    const bool is_requested = all || names_.contains(name);
    if (is_requested) found_names.insert(name);
    return is_requested;
  }

  const std::set<std::string>& names_;
  std::map<const Graph*, bool> visited_;  // for each visited graph: whether all its nodes are requested
};

bool is_float_constant(const ProgramGraph& graph, const ProgramNode& node, size_t input) {
  const ValueId id = node.inputs[input];
  if (id == kAbsent || !graph.value(id).constant || !is_operator_float(graph.value(id).dtype)) return false;
  return !is_host_input(node, input) || has_bit(node.row->host.element_inputs, input);
}

}  // namespace

std::set<std::string> expand_fp32_node_names(const Graph& graph, const std::set<std::string>& names) {
  if (names.empty()) return {};
  NodeNameFinder name_finder(names);
  name_finder.visit_graph(graph, {}, false);
  for (const std::string& name : names)
    if (!name_finder.found_names.contains(name)) throw GraphError(name, "float32_nodes: the graph has no node of this name");
  return std::move(name_finder.found_names);
}

void force_fp32_nodes(ProgramGraph& graph) {
  if (graph.float_dtype == DType::float32) return;
  std::map<ValueId, ValueId> copies;  // float32 copies of constants; other nodes may read the originals in 16 bits
  for (ProgramNode& node : graph.nodes) {
    ReportRow& row = graph.report[node.report];
    if (!row.fp32_requested) continue;
    node.fp32 = true;
    if (row.fp32.empty()) row.fp32 = "float32: by the policy";
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!is_float_constant(graph, node, k)) continue;
      const auto [copy, added] = copies.try_emplace(node.inputs[k], kAbsent);
      if (added) {
        GraphValue copy_value = graph.value(node.inputs[k]);
        copy_value.fp32 = true;
        copy->second = graph.add_value(std::move(copy_value));
      }
      node.inputs[k] = copy->second;
    }
  }
}

}  // namespace pumice
