#include "graph/control_flow/graph_levels.h"

#include <algorithm>
#include <limits>

#include "graph/description/shape_inference.h"
#include "operators/host/host_evaluate.h"
#include "operators/reduction/non_zero.h"

namespace pumice {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();
constexpr int64_t kMaxFollowedElements = 64;  // maximum number of elements of a tensor that the host reads to compute other tensors

bool is_host_input(const GraphNode& node, size_t i) {
  return node.row && has_bit(node.row->host_inputs, i);
}

// Whether a value has few enough elements to be read by the host, and may hold sizes. Integer vectors of unknown length count as small.
bool may_hold_sizes(const GraphValue& value) {
  if (value.is_known()) return element_count(*value.shape) <= kMaxFollowedElements;
  return value.shape && value.shape->size() == 1 && !is_float(value.dtype);
}

class GraphLevelBuilder {
 public:
  GraphLevelBuilder(const Graph& graph, const std::vector<bool>& needed) : graph_(graph), needed_(needed) {
    const size_t count = graph.values().size();
    value_levels_.assign(count, 0);
    host_level_.assign(count, kNever);
    is_shape_derived_.assign(count, false);
    result_.crosses_levels.assign(count, false);
    result_.on_host.assign(count, false);
    node_levels_.assign(graph.nodes().size(), kNever);
  }

  GraphLevels build(const std::vector<ValueId>& outputs) {
    for (const ValueId output : outputs) result_.crosses_levels[to_index(output)] = true;
    for (size_t i = 0; i < graph_.values().size(); ++i)
      if (graph_.values()[i].constant) host_level_[i] = 0, is_shape_derived_[i] = true;
    for (const ValueId input : graph_.inputs())
      if (may_hold_sizes(graph_.value(input))) host_level_[to_index(input)] = 0;
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (is_needed(graph_.nodes()[i], needed_)) assign_level(i);
    find_host_outputs();
    return std::move(result_);
  }

 private:
  void assign_level(size_t i) {
    const GraphNode& node = graph_.nodes()[i];
    size_t level = 0;
    for (const ValueId input : node.inputs)
      if (input != kAbsent) level = std::max(level, value_levels_[to_index(input)]);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && is_host_input(node, k)) level = std::max(level, first_readable_level(node.inputs[k]));
    if (result_.levels.size() <= level) result_.levels.resize(level + 1);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && is_host_input(node, k)) record_read_back(i, node.inputs[k], level);
    for (const ValueId input : node.inputs)
      if (input != kAbsent && (node.control || value_levels_[to_index(input)] != level)) result_.crosses_levels[to_index(input)] = true;
    (node.control ? result_.levels[level].control : result_.levels[level].plain).push_back(i);
    node_levels_[i] = level;
    for (const ValueId output : node.outputs)
      if (output != kAbsent) assign_value_level(node, output, level);
  }

  // Returns the first level in which the host can read the elements of a value.
  size_t first_readable_level(ValueId value) const {
    const size_t host_level = host_level_[to_index(value)];
    if (host_level != kNever) return host_level;
    const int32_t producer = graph_.value(value).producer;
    const bool is_available = producer < 0 || graph_.nodes()[static_cast<size_t>(producer)].control;
    return value_levels_[to_index(value)] + (is_available ? 0 : 1);
  }

  void record_read_back(size_t node, ValueId value, size_t level) {
    if (host_level_[to_index(value)] != kNever || graph_.value(value).producer < 0) return;
    result_.levels[level].read_backs.push_back({node, value});
    host_level_[to_index(value)] = level;
  }

  void assign_value_level(const GraphNode& node, ValueId output, size_t level) {
    value_levels_[to_index(output)] = level + (node.control ? 1 : 0);
    if (node.control) {
      if (may_hold_sizes(graph_.value(output))) host_level_[to_index(output)] = level + 1;
      return;
    }
    const auto from_shapes = [&](ValueId input) { return input == kAbsent || is_shape_derived_[to_index(input)]; };
    is_shape_derived_[to_index(output)] =
        node.row->host.reads_only_shapes || (is_host_computable(node, output) && std::ranges::all_of(node.get_data_inputs(), from_shapes));
    const auto is_on_host = [&](ValueId input) { return input == kAbsent || host_level_[to_index(input)] <= level; };
    // CountNonZero runs on the device, unless its input follows from shapes alone.
    const bool counts = node.row->name == kCountNonZero;
    if (is_shape_derived_[to_index(output)] ||
        (!counts && is_host_computable(node, output) && std::ranges::all_of(node.get_data_inputs(), is_on_host)))
      host_level_[to_index(output)] = level;
  }

  bool is_host_computable(const GraphNode& node, ValueId output) const {
    if (!node.row->evaluate) return false;
    const GraphValue& value = graph_.value(output);
    return !value.is_known() || element_count(*value.shape) <= kMaxRequiredHostElements;
  }

  // Walks backwards from values that the host reads, to find the region outputs whose elements the host needs.
  void find_host_outputs() {
    std::vector<bool> read(graph_.values().size(), false);
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const GraphNode& node = graph_.nodes()[i];
      if (node_levels_[i] == kNever || node.control) continue;
      const bool elements_needed =
          std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && read[to_index(output)]; });
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId input = node.inputs[k];
        if (input == kAbsent || host_level_[to_index(input)] > node_levels_[i]) continue;
        if (!is_host_input(node, k) && !(elements_needed && k < node.get_data_inputs().size() && !node.row->host.reads_only_shapes))
          continue;
        read[to_index(input)] = true;
        if (host_level_[to_index(input)] == value_levels_[to_index(input)] && value_levels_[to_index(input)] < node_levels_[i])
          result_.on_host[to_index(input)] = true;
      }
    }
  }

  const Graph& graph_;
  const std::vector<bool>& needed_;
  std::vector<size_t> value_levels_, node_levels_;  // indexed by value, and by node
  std::vector<size_t> host_level_;                  // for each value: first level in which its elements are on the host
  std::vector<bool> is_shape_derived_;              // for each value: whether it depends only on shapes and constants
  GraphLevels result_;
};

}  // namespace

std::vector<bool> find_needed_values(const Graph& graph, bool all) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const auto& [name, output] : graph.outputs()) needed[to_index(output)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const GraphNode& node = graph.nodes()[i];
    if (!all && !is_needed(node, needed)) continue;
    for (const auto* values : {&node.inputs, &node.outputs})
      for (const ValueId value : *values)
        if (value != kAbsent && (all || values == &node.inputs)) needed[to_index(value)] = true;
  }
  return needed;
}

bool is_needed(const GraphNode& node, const std::vector<bool>& needed) {
  return std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && needed[to_index(output)]; });
}

std::string describe_read_backs(const Graph& graph, const GraphLevel& level) {
  std::string text;
  for (const auto& [node, value] : level.read_backs) {
    const GraphNode& producer = graph.nodes()[static_cast<size_t>(graph.value(value).producer)];
    text += (text.empty() ? "the host reads '" : ", '") + graph.value(value).name + "' of '" + producer.name + "' for the shape of '" +
            graph.nodes()[node].name + "'";
  }
  return text;
}

GraphLevels compute_levels(const Graph& graph, const std::vector<bool>& needed, const std::vector<ValueId>& outputs) {
  return GraphLevelBuilder(graph, needed).build(outputs);
}

}  // namespace pumice
