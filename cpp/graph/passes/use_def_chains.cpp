#include "graph/passes/use_def_chains.h"

#include <algorithm>

#include "operators/host/host_evaluate.h"

namespace pumice {
namespace {

constexpr int kMaxDepth = 16;  // maximum number of nodes between a scalar and the shapes it depends on

}  // namespace

UseDefChains::UseDefChains(const ProgramGraph& graph)
    : graph_(graph), producers_(graph.values.size(), nullptr), readers_(graph.values.size()), is_output_(graph.values.size(), false) {
  for (const ProgramNode& node : graph.nodes) {
    if (!node.outputs.empty() && node.outputs[0] != kAbsent) producers_[to_index(node.outputs[0])] = &node;
    for (const ValueId input : node.inputs)
      if (input != kAbsent) readers_[to_index(input)].push_back(&node);
  }
  for (const auto& [name, value] : graph.outputs) is_output_[to_index(value)] = true;
}

const ProgramNode* UseDefChains::find_producer(ValueId id, std::string_view op) const {
  const ProgramNode* node = id == kAbsent ? nullptr : producers_[to_index(id)];
  return node && (op.empty() || node->row->name == op) ? node : nullptr;
}

const ProgramNode* UseDefChains::find_only_reader(ValueId id) const {
  return !is_output_[to_index(id)] && readers_[to_index(id)].size() == 1 ? readers_[to_index(id)][0] : nullptr;
}

std::optional<double> UseDefChains::get_float_scalar(ValueId id) const {
  if (id == kAbsent) return {};
  const auto& constant = graph_.value(id).constant;
  if (!constant || !constant->data || constant->desc.elements() != 1 || !is_float(constant->desc.dtype)) return {};
  return constant->as_double()[0];
}

bool UseDefChains::is_known_scalar(ValueId id) const {
  const auto shape = graph_.known_shape(id);
  return shape && element_count(*shape) == 1 && is_float(graph_.value(id).dtype) && depends_only_on_shapes(id, 0);
}

bool UseDefChains::depends_only_on_shapes(ValueId id, int depth) const {
  if (id == kAbsent || graph_.value(id).constant) return true;
  const ProgramNode* node = find_producer(id);
  if (!node || depth > kMaxDepth) return false;
  if (node->row->host.reads_only_shapes) return true;
  return node->row->evaluate && std::ranges::all_of(node->inputs, [&](ValueId input) { return depends_only_on_shapes(input, depth + 1); });
}

std::vector<UseDefChains::SymbolicSize> UseDefChains::get_sizes(ValueId id) const {
  std::vector<SymbolicSize> sizes;
  const Shape& shape = *graph_.value(id).shape;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    sizes.push_back(shape[axis] == kUnknownSize ? SymbolicSize{-1, id, axis} : SymbolicSize{shape[axis]});
  return sizes;
}

std::optional<std::vector<UseDefChains::SymbolicSize>> UseDefChains::trace_sizes(ValueId vector) const {
  if (vector == kAbsent) return {};
  if (const auto& constant = graph_.value(vector).constant) {
    if (constant->desc.dtype != DType::int64 || constant->desc.elements() > kMaxRank) return {};
    std::vector<SymbolicSize> sizes;
    for (const int64_t number : constant->as_int64()) sizes.push_back({number});
    return sizes;
  }
  const ProgramNode* node = find_producer(vector);
  if (!node) return {};
  const std::string_view op = node->row->name;
  if (node->row->alias.forwards != ForwardedInput::nothing || node->row->casts) return trace_sizes(node->inputs[0]);
  if (op == "Gather") return trace_gathered_sizes(*node);
  if (op == "Slice") return trace_sliced_sizes(*node);
  if (op == "Shape" && graph_.value(node->inputs[0]).shape) {
    const std::vector<SymbolicSize> all = get_sizes(node->inputs[0]);
    const auto rank = static_cast<int64_t>(all.size());
    const auto clamp_index = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
    const int64_t begin = clamp_index(node->attributes.integer("start", 0)), end = clamp_index(node->attributes.integer("end", rank));
    return std::vector<SymbolicSize>(all.begin() + begin, all.begin() + std::max(begin, end));
  }
  if (op != "Concat") return {};
  std::vector<SymbolicSize> sizes;
  for (const ValueId input : node->inputs) {
    const auto input_sizes = trace_sizes(input);
    if (!input_sizes) return {};
    sizes.insert(sizes.end(), input_sizes->begin(), input_sizes->end());
  }
  return sizes;
}

std::optional<std::vector<UseDefChains::SymbolicSize>> UseDefChains::trace_gathered_sizes(const ProgramNode& gather) const {
  const auto all = trace_sizes(gather.inputs[0]);
  const auto& indices = graph_.value(gather.inputs[1]).constant;
  if (!all || !indices || indices->desc.elements() != 1) return {};
  const int64_t index_value = indices->as_int64()[0], at = index_value < 0 ? index_value + static_cast<int64_t>(all->size()) : index_value;
  if (at < 0 || at >= static_cast<int64_t>(all->size())) return {};
  return std::vector<SymbolicSize>{(*all)[static_cast<size_t>(at)]};
}

std::optional<std::vector<UseDefChains::SymbolicSize>> UseDefChains::trace_sliced_sizes(const ProgramNode& slice) const {
  const auto all = trace_sizes(slice.inputs[0]);
  const auto integer = [&](size_t input, int64_t fallback) -> std::optional<int64_t> {
    if (input >= slice.inputs.size() || slice.inputs[input] == kAbsent) return fallback;
    const auto& constant = graph_.value(slice.inputs[input]).constant;
    if (!constant || constant->desc.elements() != 1) return {};
    return constant->as_int64()[0];
  };
  const auto start = integer(1, 0), end = integer(2, 0), axis = integer(3, 0), step = integer(4, 1);
  if (!all || !start || !end || axis != 0 || step != 1) return {};
  const auto rank = static_cast<int64_t>(all->size());
  const auto clamp_index = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  return std::vector<SymbolicSize>(all->begin() + clamp_index(*start), all->begin() + std::max(clamp_index(*start), clamp_index(*end)));
}

}  // namespace pumice
