#include "graph/description/shape_sources.h"

#include <algorithm>

#include "core/error.h"
#include "operators/host/host_evaluate.h"
#include "operators/reduction/non_zero.h"

namespace pumice {
namespace {

bool counts(DType dtype) {
  return is_integer(dtype) || dtype == DType::bool_;
}

// Determines for each value whether the host can know its shape, and its elements.
class Sources {
 public:
  explicit Sources(const Graph& graph) : graph_(graph), shape_(graph.values().size(), true), elements_(graph.values().size(), false) {
    for (size_t i = 0; i < elements_.size(); ++i) {
      const GraphValue& value = graph.values()[i];
      elements_[i] = value.constant.has_value() || (value.producer < 0 && counts(value.dtype));
    }
    for (const GraphNode& node : graph.nodes()) {
      const bool shape = all(node, false), elements = all(node, true);
      for (const ValueId output : node.outputs)
        if (output != kAbsent) shape_[at(output)] = shape, elements_[at(output)] = elements;
    }
  }

  std::optional<std::vector<ValueId>> of(ValueId value, bool elements) const {
    if (!(elements ? elements_ : shape_)[at(value)]) return {};
    std::vector<bool> shapes(graph_.values().size(), false), wanted = shapes;
    (elements ? wanted : shapes)[at(value)] = true;
    for (auto node = graph_.nodes().rbegin(); node != graph_.nodes().rend(); ++node) {
      const bool makes_wanted = any(*node, wanted), makes_shape = any(*node, shapes);
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        const ValueId input = node->inputs[i];
        if (input == kAbsent || (!makes_wanted && !makes_shape)) continue;
        if (reads(*node, i, makes_wanted))
          wanted[at(input)] = true;
        else
          shapes[at(input)] = true;
      }
    }
    std::vector<ValueId> found;
    for (const ValueId input : graph_.inputs())
      if (wanted[at(input)]) found.push_back(input);
    return found;
  }

 private:
  static size_t at(ValueId value) { return static_cast<size_t>(value); }

  // Whether the node reads this input's elements to determine its output shapes or, with `elements`, the elements of its outputs.
  static bool reads(const GraphNode& node, size_t input, bool elements) {
    return has_bit(node.row->host_inputs, input) || (elements && !node.row->reads_shapes_alone);
  }

  static bool any(const GraphNode& node, const std::vector<bool>& values) {
    return std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && values[at(output)]; });
  }

  bool all(const GraphNode& node, bool elements) const {
    if (node.control || !node.row->counted.empty() || node.row->name == kCountNonZero) return false;
    if (elements && !node.row->reads_shapes_alone && !node.row->evaluate) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input != kAbsent && !(reads(node, i, elements) ? elements_ : shape_)[at(input)]) return false;
    }
    return true;
  }

  const Graph& graph_;
  std::vector<bool> shape_, elements_;
};

// Returns the nodes that a value depends on, directly or indirectly.
std::vector<bool> makers(const Graph& graph, ValueId value) {
  std::vector<bool> wanted(graph.values().size(), false), made(graph.nodes().size(), false);
  wanted[static_cast<size_t>(value)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const GraphNode& node = graph.nodes()[i];
    made[i] = std::ranges::any_of(node.outputs, [&](ValueId one) { return one != kAbsent && wanted[static_cast<size_t>(one)]; });
    for (const ValueId input : node.inputs)
      if (made[i] && input != kAbsent) wanted[static_cast<size_t>(input)] = true;
  }
  return made;
}

}  // namespace

std::optional<std::vector<ValueId>> shape_sources(const Graph& graph, ValueId value, bool elements) {
  return Sources(graph).of(value, elements);
}

ValueId Graph::graft(const Graph& other, ValueId value, const std::vector<ValueId>& inputs, const std::string& stem) {
  check_changeable();
  const size_t nodes = nodes_.size(), values = values_.size();
  const bool exact = exact_;
  std::vector<ValueId> own(other.values().size(), kAbsent);
  for (size_t i = 0; i < inputs.size(); ++i) own[static_cast<size_t>(other.inputs()[i])] = inputs[i];
  const auto copied = [&](ValueId id) {
    if (id == kAbsent) return kAbsent;
    ValueId& known = own[static_cast<size_t>(id)];
    if (known == kAbsent && other.value(id).constant) known = constant(*other.value(id).constant);
    return known;
  };
  const std::vector<bool> needed = makers(other, value);
  try {
    for (size_t i = 0; i < other.nodes().size(); ++i) {
      if (!needed[i]) continue;
      const GraphNode& node = other.nodes()[i];
      std::vector<ValueId> operands;
      for (const ValueId input : node.inputs) operands.push_back(copied(input));
      const auto made = node.compound
                            ? add(*node.compound, std::move(operands), node.attributes, node.outputs.size(), stem + "/" + node.name)
                            : add(node.row->name, std::move(operands), node.attributes, node.outputs.size(), stem + "/" + node.name);
      nodes_.back().tentative = true;
      for (size_t j = 0; j < made.size(); ++j) own[static_cast<size_t>(node.outputs[j])] = made[j];
    }
  } catch (...) {
    truncate(nodes, values);
    exact_ = exact;
    throw;
  }
  return copied(value);
}

}  // namespace pumice
