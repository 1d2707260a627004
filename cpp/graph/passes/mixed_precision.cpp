#include "graph/passes/mixed_precision.h"

#include <algorithm>

namespace pumice {
namespace {

bool is_view(const ProgramNode& node) {
  return node.row->skeleton == KernelKind::view;
}

bool computes_fp32(const ProgramGraph& graph, const ProgramNode& node) {
  return node.fp32 || graph.report[node.report].fp32_requested;
}

}  // namespace

MixedPrecisionAnalysis::MixedPrecisionAnalysis(const ProgramGraph& graph)
    : graph_(graph), readable_as_fp32_(graph.values.size(), true), only_fp32_output_(graph.values.size(), true) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const auto& [name, value] : graph.outputs) {
    is_output[to_index(value)] = true;
    readable_as_fp32_[to_index(value)] = false;
    if (graph.value(value).dtype != DType::float32) only_fp32_output_[to_index(value)] = false;
  }
  // Walks backwards: a value qualifies if all its readers are qualifying views, or if it is an output without readers.
  std::vector<bool> is_read(graph.values.size(), false);
  for (const ProgramNode& node : graph.nodes)
    for (const ValueId input : node.inputs)
      if (input != kAbsent) is_read[to_index(input)] = true;
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (!is_output[i] && !is_read[i]) only_fp32_output_[i] = false;
  for (size_t i = graph.nodes.size(); i-- > 0;) analyze_node(graph.nodes[i]);
}

void MixedPrecisionAnalysis::analyze_node(const ProgramNode& node) {
  const auto all = [&](const std::vector<bool>& flags) {
    return std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || flags[to_index(output)]; });
  };
  const bool is_output_view = is_view(node) && !computes_fp32(graph_, node) && all(only_fp32_output_);
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (node.inputs[k] == kAbsent) continue;
    const size_t input = to_index(node.inputs[k]);
    if (!accepts_fp32(node, k)) readable_as_fp32_[input] = false;
    if (!is_output_view || k != 0) only_fp32_output_[input] = false;
  }
}

bool MixedPrecisionAnalysis::accepts_fp32(const ProgramNode& node, size_t input) const {
  if (computes_fp32(graph_, node)) return false;
  if (has_bit(node.row->precision.fp32_inputs, input) || node.row->host.reads_only_shapes || input >= node.get_data_inputs().size())
    return true;
  return is_view(node) && input == 0 &&
         std::ranges::all_of(node.outputs, [&](ValueId output) { return output == kAbsent || readable_as_fp32_[to_index(output)]; });
}

bool MixedPrecisionAnalysis::stores_fp32(const ProgramNode& node, size_t output) const {
  return has_bit(node.row->precision.fp32_outputs, output) && node.outputs[output] != kAbsent &&
         only_fp32_output_[to_index(node.outputs[output])];
}

}  // namespace pumice
