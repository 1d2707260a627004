#include "graph/region/deferred_expansion.h"

#include <algorithm>

#include "core/error.h"
#include "graph/passes/deferred_nodes.h"
#include "graph/passes/passes.h"

namespace pumice {
namespace {

// Expands a graph for the ranks, sizes or elements of the key; returns nullopt if they do not determine all nodes.
std::optional<ExpandedGraph> try_expand(const ProgramGraph& graph, const ExpansionKey& key) {
  std::vector<std::optional<Shape>> shapes;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto& declared = graph.value(graph.inputs[i]).shape;
    if (key.kind != ExpansionKey::KeyKind::ranks)
      shapes.emplace_back(key.shapes[i]);
    else if (declared && !graph.dynamic_inputs[i])
      shapes.push_back(declared);
    else
      shapes.emplace_back(Shape(key.shapes[i].size(), kUnknownSize));
  }
  ExpandedGraph expansion{key, expand_deferred_nodes(graph, shapes, key.values), {}};
  expansion.subgraph = make_whole_subgraph(*expansion.graph);
  const auto deferred = std::ranges::find_if(expansion.graph->nodes(), is_deferred);
  if (deferred != expansion.graph->nodes().end() && key.kind != ExpansionKey::KeyKind::elements) return {};
  if (deferred != expansion.graph->nodes().end()) reject_deferred_node(*deferred);
  expansion.subgraph.host_outputs = graph.host_outputs;
  expansion.subgraph.boundary_inputs = graph.boundary_inputs, expansion.subgraph.boundary_outputs = graph.boundary_outputs;
  return expansion;
}

}  // namespace

bool ExpansionKey::matches(std::span<const ShapeView> call_shapes, std::span<const std::byte* const> elements) const {
  for (size_t i = 0; i < call_shapes.size(); ++i) {
    if (shapes[i].size() != call_shapes[i].size()) return false;
    if (kind != KeyKind::ranks && !std::ranges::equal(shapes[i], call_shapes[i])) return false;
    const auto& value = values[i];
    if (value && (i >= elements.size() || !have_same_elements(*value, {value->desc, {}, elements[i]}))) return false;
  }
  return true;
}

ExpandedGraph expand_deferred_graph(const ProgramGraph& graph, std::span<const ShapeView> shapes,
                                    std::span<const std::byte* const> values) {
  ExpansionKey key{ExpansionKey::KeyKind::ranks, {}, std::vector<std::optional<HostTensor>>(shapes.size())};
  for (const ShapeView& shape : shapes) key.shapes.emplace_back(shape.begin(), shape.end());
  for (const auto kind : {ExpansionKey::KeyKind::ranks, ExpansionKey::KeyKind::sizes}) {
    key.kind = kind;
    if (auto expansion = try_expand(graph, key)) return std::move(*expansion);
  }
  key.kind = ExpansionKey::KeyKind::elements;
  for (size_t i = 0; i < values.size(); ++i)
    if (graph.shape_value_inputs[i])
      key.values[i] = HostTensor::copy_of(TensorDesc(graph.value(graph.inputs[i]).dtype, key.shapes[i]), values[i]);
  return std::move(*try_expand(graph, key));
}

}  // namespace pumice
