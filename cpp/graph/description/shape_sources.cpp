#include "graph/description/shape_sources.h"

#include <algorithm>

#include "core/error.h"
#include "operators/host/host_evaluate.h"
#include "operators/reduction/non_zero.h"

namespace pumice {
namespace {

bool is_integral(DType dtype) {
  return is_integer(dtype) || dtype == DType::bool_;
}

// Determines for each value whether the host can compute its shape, and its elements.
class ShapeSources {
 public:
  explicit ShapeSources(const Graph& graph) : graph_(graph), shape_(graph.values().size(), true), elements_(graph.values().size(), false) {
    for (size_t i = 0; i < elements_.size(); ++i) {
      const GraphValue& value = graph.values()[i];
      elements_[i] = value.constant.has_value() || (value.producer < 0 && is_integral(value.dtype));
    }
    for (const GraphNode& node : graph.nodes()) {
      const bool shape = can_compute_on_host(node, false), elements = can_compute_on_host(node, true);
      for (const ValueId output : node.outputs)
        if (output != kAbsent) shape_[to_index(output)] = shape, elements_[to_index(output)] = elements;
    }
  }

  std::optional<std::vector<ValueId>> find_sources(ValueId value, bool elements) const {
    if (!(elements ? elements_ : shape_)[to_index(value)]) return {};
    std::vector<bool> shapes(graph_.values().size(), false), needed_elements = shapes;
    (elements ? needed_elements : shapes)[to_index(value)] = true;
    for (auto node = graph_.nodes().rbegin(); node != graph_.nodes().rend(); ++node) {
      const bool makes_elements = has_marked_output(*node, needed_elements), makes_shapes = has_marked_output(*node, shapes);
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        const ValueId input = node->inputs[i];
        if (input == kAbsent || (!makes_elements && !makes_shapes)) continue;
        if (reads_elements(*node, i, makes_elements))
          needed_elements[to_index(input)] = true;
        else
          shapes[to_index(input)] = true;
      }
    }
    std::vector<ValueId> sources;
    for (const ValueId input : graph_.inputs())
      if (needed_elements[to_index(input)]) sources.push_back(input);
    return sources;
  }

 private:
  // Whether the output shapes depend on the elements of this input or, with `elements`, the output elements do.
  static bool reads_elements(const GraphNode& node, size_t input, bool elements) {
    return has_bit(node.row->host_inputs, input) || (elements && !node.row->host.reads_only_shapes);
  }

  static bool has_marked_output(const GraphNode& node, const std::vector<bool>& values) {
    return std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && values[to_index(output)]; });
  }

  bool can_compute_on_host(const GraphNode& node, bool elements) const {
    if (node.control || !node.row->counted_operator.empty() || node.row->name == kCountNonZero) return false;
    if (elements && !node.row->host.reads_only_shapes && !node.row->evaluate) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input != kAbsent && !(reads_elements(node, i, elements) ? elements_ : shape_)[to_index(input)]) return false;
    }
    return true;
  }

  const Graph& graph_;
  std::vector<bool> shape_, elements_;
};

// Returns, for each node, whether the value depends on it, directly or indirectly.
std::vector<bool> find_producers(const Graph& graph, ValueId value) {
  std::vector<bool> needed_elements(graph.values().size(), false), is_producer(graph.nodes().size(), false);
  needed_elements[static_cast<size_t>(value)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const GraphNode& node = graph.nodes()[i];
    is_producer[i] = std::ranges::any_of(
        node.outputs, [&](ValueId output_id) { return output_id != kAbsent && needed_elements[static_cast<size_t>(output_id)]; });
    for (const ValueId input : node.inputs)
      if (is_producer[i] && input != kAbsent) needed_elements[static_cast<size_t>(input)] = true;
  }
  return is_producer;
}

}  // namespace

std::optional<std::vector<ValueId>> find_shape_sources(const Graph& graph, ValueId value, bool elements) {
  return ShapeSources(graph).find_sources(value, elements);
}

ValueId Graph::copy_computation(const Graph& other, ValueId value, const std::vector<ValueId>& inputs, const std::string& name_prefix) {
  check_not_finished();
  const size_t nodes = nodes_.size(), values = values_.size();
  const bool exact = exact_;
  std::vector<ValueId> new_ids(other.values().size(), kAbsent);
  for (size_t i = 0; i < inputs.size(); ++i) new_ids[static_cast<size_t>(other.inputs()[i])] = inputs[i];
  const auto copy_value = [&](ValueId id) {
    if (id == kAbsent) return kAbsent;
    ValueId& known = new_ids[static_cast<size_t>(id)];
    if (known == kAbsent && other.value(id).constant) known = constant(*other.value(id).constant);
    return known;
  };
  const std::vector<bool> needed = find_producers(other, value);
  try {
    for (size_t i = 0; i < other.nodes().size(); ++i) {
      if (!needed[i]) continue;
      const GraphNode& node = other.nodes()[i];
      std::vector<ValueId> operands;
      for (const ValueId input : node.inputs) operands.push_back(copy_value(input));
      const auto output_ids =
          node.compound ? add(*node.compound, std::move(operands), node.attributes, node.outputs.size(), name_prefix + "/" + node.name)
                        : add(node.row->name, std::move(operands), node.attributes, node.outputs.size(), name_prefix + "/" + node.name);
      nodes_.back().may_fail = true;
      for (size_t j = 0; j < output_ids.size(); ++j) new_ids[static_cast<size_t>(node.outputs[j])] = output_ids[j];
    }
  } catch (...) {
    truncate_to(nodes, values);
    exact_ = exact;
    throw;
  }
  return copy_value(value);
}

}  // namespace pumice
