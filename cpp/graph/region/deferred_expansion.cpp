#include "graph/region/deferred_expansion.h"

#include <algorithm>

#include "core/error.h"
#include "graph/passes/deferred_nodes.h"
#include "graph/passes/passes.h"

namespace pumice {
namespace {

// Expands a graph for its declared sizes or for the actual ones; nullopt if these do not determine all nodes.
std::optional<LateGraph> expand(const ProgramGraph& graph, const LateChoice& choice) {
  std::vector<std::optional<Shape>> shapes;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto& declared = graph.value(graph.inputs[i]).shape;
    if (choice.known != LateChoice::Known::ranks)
      shapes.emplace_back(choice.shapes[i]);
    else if (declared && !graph.made_inputs[i])
      shapes.push_back(declared);
    else
      shapes.emplace_back(Shape(choice.shapes[i].size(), kUnknownSize));
  }
  LateGraph made{choice, expanded(graph, shapes, choice.values), {}};
  made.part = whole(*made.graph);
  const auto late = std::ranges::find_if(made.graph->nodes(), is_late);
  if (late != made.graph->nodes().end() && choice.known != LateChoice::Known::elements) return {};
  if (late != made.graph->nodes().end()) refuse_late(*late);
  made.part.host_outputs = graph.host_outputs;
  made.part.entering = graph.entering, made.part.leaving = graph.leaving;
  return made;
}

}  // namespace

bool LateChoice::matches(std::span<const ShapeView> given, std::span<const std::byte* const> elements) const {
  for (size_t i = 0; i < given.size(); ++i) {
    if (shapes[i].size() != given[i].size()) return false;
    if (known != Known::ranks && !std::ranges::equal(shapes[i], given[i])) return false;
    const auto& value = values[i];
    if (value && (i >= elements.size() || !same_elements(*value, {value->desc, {}, elements[i]}))) return false;
  }
  return true;
}

LateGraph expand_late(const ProgramGraph& graph, std::span<const ShapeView> shapes, std::span<const std::byte* const> values) {
  LateChoice choice{LateChoice::Known::ranks, {}, std::vector<std::optional<HostTensor>>(shapes.size())};
  for (const ShapeView& shape : shapes) choice.shapes.emplace_back(shape.begin(), shape.end());
  for (const auto known : {LateChoice::Known::ranks, LateChoice::Known::sizes}) {
    choice.known = known;
    if (auto made = expand(graph, choice)) return std::move(*made);
  }
  choice.known = LateChoice::Known::elements;
  for (size_t i = 0; i < values.size(); ++i)
    if (graph.value_inputs[i])
      choice.values[i] = HostTensor::copy_of(TensorDesc(graph.value(graph.inputs[i]).dtype, choice.shapes[i]), values[i]);
  return std::move(*expand(graph, choice));
}

}  // namespace pumice
