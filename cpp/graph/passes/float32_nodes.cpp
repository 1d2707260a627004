#include "graph/passes/float32_nodes.h"

#include <map>
#include <vector>

#include "core/error.h"

namespace pumice {
namespace {

// Finds nodes by their report names, which start with the graph's name in nested graphs.
class Finder {
 public:
  explicit Finder(const std::set<std::string>& names) : names_(names) {}

  void visit(const Graph& graph, const std::string& prefix, bool all) {
    for (const GraphNode& node : graph.nodes()) {
      bool wanted = note(prefix + node.name, all);
      if (node.origin) wanted = note(prefix + node.origin->node, all) || wanted;
      if (!node.control) continue;
      visit_inner(*node.control->first, wanted);
      visit_inner(*node.control->second, wanted);
    }
  }

  std::set<std::string> found;

 private:
  // A graph run by several nodes is float32 if any of them asks for it.
  void visit_inner(const Graph& graph, bool all) {
    const auto [known, added] = visited_.try_emplace(&graph, all);
    if (!added && (known->second || !all)) return;
    known->second = all;
    visit(graph, graph.name().empty() ? std::string() : graph.name() + "/", all);
  }

  bool note(const std::string& name, bool all) {
    const bool wanted = all || names_.contains(name);
    if (wanted) found.insert(name);
    return wanted;
  }

  const std::set<std::string>& names_;
  std::map<const Graph*, bool> visited_;  // whether all of a graph's nodes are requested
};

bool reads_floats(const ProgramGraph& graph, const ProgramNode& node, size_t input) {
  const ValueId id = node.inputs[input];
  if (id == kAbsent || !graph.value(id).constant || !is_working_float(graph.value(id).dtype)) return false;
  return !is_host_input(node, input) || has_bit(node.row->host_elements, input);
}

}  // namespace

std::set<std::string> float32_nodes_of(const Graph& graph, const std::set<std::string>& names) {
  if (names.empty()) return {};
  Finder finder(names);
  finder.visit(graph, {}, false);
  for (const std::string& name : names)
    if (!finder.found.contains(name)) throw GraphError(name, "float32_nodes: the graph has no node of this name");
  return std::move(finder.found);
}

void keep_float32_nodes(ProgramGraph& graph) {
  if (graph.float_dtype == DType::float32) return;
  std::map<ValueId, ValueId> copies;  // float32 copies of constants, because other nodes may read the originals in 16 bits
  for (ProgramNode& node : graph.nodes) {
    ReportRow& row = graph.report[node.report];
    if (!row.is_float32) continue;
    node.wide = true;
    if (row.wide.empty()) row.wide = "float32: by the policy";
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!reads_floats(graph, node, k)) continue;
      const auto [copy, added] = copies.try_emplace(node.inputs[k], kAbsent);
      if (added) {
        GraphValue made = graph.value(node.inputs[k]);
        made.wide = true;
        copy->second = graph.add_value(std::move(made));
      }
      node.inputs[k] = copy->second;
    }
  }
}

}  // namespace pumice
