#include "graph/control_flow/graph_levels.h"

#include <algorithm>
#include <limits>

#include "graph/description/shape_inference.h"
#include "operators/host/host_evaluate.h"
#include "operators/reduction/non_zero.h"

namespace pumice {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();
constexpr int64_t kMostFollowed = 64;  // maximum size of a tensor that is read to compute others on the host

bool is_host_input(const GraphNode& node, size_t i) {
  return node.row && has_bit(node.row->host_inputs, i);
}

// Whether elements are few enough to read and may be sizes. Vectors of unknown length count if they hold integers.
bool is_small(const GraphValue& value) {
  if (value.is_known()) return element_count(*value.shape) <= kMostFollowed;
  return value.shape && value.shape->size() == 1 && !is_float(value.dtype);
}

class Leveller {
 public:
  Leveller(const Graph& graph, const std::vector<bool>& needed) : graph_(graph), needed_(needed) {
    const size_t count = graph.values().size();
    of_values_.assign(count, 0);
    told_from_.assign(count, kNever);
    from_shapes_.assign(count, false);
    result_.crosses.assign(count, false);
    result_.on_host.assign(count, false);
    of_nodes_.assign(graph.nodes().size(), kNever);
  }

  GraphLevels find(const std::vector<ValueId>& outputs) {
    for (const ValueId output : outputs) result_.crosses[index(output)] = true;
    for (size_t i = 0; i < graph_.values().size(); ++i)
      if (graph_.values()[i].constant) told_from_[i] = 0, from_shapes_[i] = true;
    for (const ValueId input : graph_.inputs())
      if (is_small(graph_.value(input))) told_from_[index(input)] = 0;
    for (size_t i = 0; i < graph_.nodes().size(); ++i)
      if (is_needed(graph_.nodes()[i], needed_)) place(i);
    find_told();
    return std::move(result_);
  }

 private:
  void place(size_t i) {
    const GraphNode& node = graph_.nodes()[i];
    size_t level = 0;
    for (const ValueId input : node.inputs)
      if (input != kAbsent) level = std::max(level, of_values_[index(input)]);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && is_host_input(node, k)) level = std::max(level, readable_from(node.inputs[k]));
    if (result_.levels.size() <= level) result_.levels.resize(level + 1);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != kAbsent && is_host_input(node, k)) note_read_back(i, node.inputs[k], level);
    for (const ValueId input : node.inputs)
      if (input != kAbsent && (node.control || of_values_[index(input)] != level)) result_.crosses[index(input)] = true;
    (node.control ? result_.levels[level].control : result_.levels[level].plain).push_back(i);
    of_nodes_[i] = level;
    for (const ValueId output : node.outputs)
      if (output != kAbsent) place_value(node, output, level);
  }

  // Returns the first level that can read a value's elements on the host.
  size_t readable_from(ValueId value) const {
    const size_t told = told_from_[index(value)];
    if (told != kNever) return told;
    const int32_t producer = graph_.value(value).producer;
    const bool made_before = producer < 0 || graph_.nodes()[static_cast<size_t>(producer)].control;
    return of_values_[index(value)] + (made_before ? 0 : 1);
  }

  void note_read_back(size_t node, ValueId value, size_t level) {
    if (told_from_[index(value)] != kNever || graph_.value(value).producer < 0) return;
    result_.levels[level].read_backs.push_back({node, value});
    told_from_[index(value)] = level;
  }

  void place_value(const GraphNode& node, ValueId output, size_t level) {
    of_values_[index(output)] = level + (node.control ? 1 : 0);
    if (node.control) {
      if (is_small(graph_.value(output))) told_from_[index(output)] = level + 1;
      return;
    }
    const auto from_shapes = [&](ValueId input) { return input == kAbsent || from_shapes_[index(input)]; };
    from_shapes_[index(output)] =
        node.row->reads_shapes_alone || (can_follow(node, output) && std::ranges::all_of(node.read(), from_shapes));
    const auto told = [&](ValueId input) { return input == kAbsent || told_from_[index(input)] <= level; };
    // The device counts, unless the count follows from shapes alone.
    const bool counts = node.row->name == kCountNonZero;
    if (from_shapes_[index(output)] || (!counts && can_follow(node, output) && std::ranges::all_of(node.read(), told)))
      told_from_[index(output)] = level;
  }

  bool can_follow(const GraphNode& node, ValueId output) const {
    if (!node.row->evaluate) return false;
    const GraphValue& value = graph_.value(output);
    return !value.is_known() || element_count(*value.shape) <= kMostDemandedElements;
  }

  // Walks backwards from the host's reads to find the values whose elements their region has to return.
  void find_told() {
    std::vector<bool> read(graph_.values().size(), false);
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const GraphNode& node = graph_.nodes()[i];
      if (of_nodes_[i] == kNever || node.control) continue;
      const bool wanted = std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && read[index(output)]; });
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId input = node.inputs[k];
        if (input == kAbsent || told_from_[index(input)] > of_nodes_[i]) continue;
        if (!is_host_input(node, k) && !(wanted && k < node.read().size() && !node.row->reads_shapes_alone)) continue;
        read[index(input)] = true;
        if (told_from_[index(input)] == of_values_[index(input)] && of_values_[index(input)] < of_nodes_[i])
          result_.on_host[index(input)] = true;
      }
    }
  }

  const Graph& graph_;
  const std::vector<bool>& needed_;
  std::vector<size_t> of_values_, of_nodes_;  // level of each value and of each node
  std::vector<size_t> told_from_;             // for each value: first level in which the host has its elements
  std::vector<bool> from_shapes_;             // for each value: whether it follows from shapes and constants alone
  GraphLevels result_;
};

}  // namespace

std::vector<bool> needed_values(const Graph& graph, bool all) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const auto& [name, output] : graph.outputs()) needed[index(output)] = true;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const GraphNode& node = graph.nodes()[i];
    if (!all && !is_needed(node, needed)) continue;
    for (const auto* values : {&node.inputs, &node.outputs})
      for (const ValueId value : *values)
        if (value != kAbsent && (all || values == &node.inputs)) needed[index(value)] = true;
  }
  return needed;
}

bool is_needed(const GraphNode& node, const std::vector<bool>& needed) {
  return std::ranges::any_of(node.outputs, [&](ValueId output) { return output != kAbsent && needed[index(output)]; });
}

std::string cut_text(const Graph& graph, const Level& level) {
  std::string text;
  for (const auto& [node, value] : level.read_backs) {
    const GraphNode& producer = graph.nodes()[static_cast<size_t>(graph.value(value).producer)];
    text += (text.empty() ? "the host reads '" : ", '") + graph.value(value).name + "' of '" + producer.name + "' for the shape of '" +
            graph.nodes()[node].name + "'";
  }
  return text;
}

GraphLevels levels_of(const Graph& graph, const std::vector<bool>& needed, const std::vector<ValueId>& outputs) {
  return Leveller(graph, needed).find(outputs);
}

}  // namespace pumice
