#include "graph/passes/mixed_precision.h"

#include <algorithm>

namespace pumice {
namespace {

bool is_view(const ProgramNode& node) {
  return node.row->skeleton == Skeleton::view;
}

bool computes_wide(const ProgramGraph& graph, const ProgramNode& node) {
  return node.wide || graph.report[node.report].is_float32;
}

}  // namespace

MixedFloats::MixedFloats(const ProgramGraph& graph)
    : graph_(graph), read_wide_(graph.values.size(), true), left_wide_(graph.values.size(), true) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const auto& [name, value] : graph.outputs) {
    is_output[index(value)] = true;
    read_wide_[index(value)] = false;
    if (graph.value(value).dtype != DType::float32) left_wide_[index(value)] = false;
  }
  // Backwards: a value qualifies if all its readers are qualifying views, or if it is an output without readers.
  std::vector<bool> is_read(graph.values.size(), false);
  for (const ProgramNode& node : graph.nodes)
    for (const ValueId input : node.inputs)
      if (input != kAbsent) is_read[index(input)] = true;
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (!is_output[i] && !is_read[i]) left_wide_[i] = false;
  for (size_t i = graph.nodes.size(); i-- > 0;) look_at(graph.nodes[i]);
}

void MixedFloats::look_at(const ProgramNode& node) {
  const auto all = [&](const std::vector<bool>& wide) {
    return std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || wide[index(output)]; });
  };
  const bool leaves = is_view(node) && !computes_wide(graph_, node) && all(left_wide_);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (node.inputs[k] == kAbsent) continue;
    const size_t input = index(node.inputs[k]);
    if (!takes_wide(node, k)) read_wide_[input] = false;
    if (!leaves || k != 0) left_wide_[input] = false;
  }
}

bool MixedFloats::takes_wide(const ProgramNode& node, size_t input) const {
  if (computes_wide(graph_, node)) return false;
  if (has_bit(node.row->wide_inputs, input) || node.row->reads_shapes_alone || input >= node.read().size()) return true;
  return is_view(node) && input == 0 &&
         std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || read_wide_[index(output)]; });
}

bool MixedFloats::makes_wide(const ProgramNode& node, size_t output) const {
  return has_bit(node.row->wide_outputs, output) && node.outputs[output] != kAbsent && left_wide_[index(node.outputs[output])];
}

}  // namespace pumice
