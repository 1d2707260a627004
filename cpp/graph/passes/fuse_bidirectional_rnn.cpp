#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/use_def_chains.h"
#include "operators/recurrent/recurrent.h"

namespace pumice {
namespace {

bool is_bidirectional_rnn(const ProgramNode& node) {
  return is_recurrent(*node.row) && count_directions(node.attributes) == 2;
}

class BidirectionalRnnFusion {
 public:
  explicit BidirectionalRnnFusion(ProgramGraph& graph) : graph_(graph), use_def_(graph), removed_(graph.nodes.size(), false) {}

  void fuse_layer(ProgramNode& node) {
    for (const size_t input : kInitialStates)
      if (input < node.inputs.size()) fuse_state_concat(node, input);
    const size_t outputs = node.outputs.size();
    for (size_t j = 0; j < outputs; ++j)
      if (node.outputs[j] != kAbsent) fuse_output_reader(node, j);
  }

  void erase_fused_nodes() {
    size_t next = 0;
    std::erase_if(graph_.nodes, [&](const ProgramNode&) { return removed_[next++]; });
  }

 private:
  void mark_fused_node(const ProgramNode& fused_node, const ProgramNode& into) {
    graph_.mark_fused(fused_node.report, into.report, Fusion::recurrent);
    removed_[static_cast<size_t>(&fused_node - graph_.nodes.data())] = true;
  }

  static size_t get_direction_axis(const ProgramNode& node, bool is_y) {
    return find_direction_axis(node.attributes.integer("layout", 0) != 0, is_y);
  }

  // Whether the axis attribute of a node selects `axis`, for a value with `rank` axes.
  static bool is_along_axis(const ProgramNode& node, size_t axis, size_t rank) {
    const int64_t axis_attribute = node.attributes.integer("axis", 0);
    return axis_attribute == static_cast<int64_t>(axis) || axis_attribute == static_cast<int64_t>(axis) - static_cast<int64_t>(rank);
  }

  bool has_size_one(ValueId value, size_t axis) const {
    const auto& shape = graph_.value(value).shape;
    return shape && axis < shape->size() && (*shape)[axis] == 1;
  }

  void fuse_state_concat(ProgramNode& node, size_t input) {
    const ValueId stacked_value = node.inputs[input];
    if (stacked_value == kAbsent) return;
    const ProgramNode* concat = use_def_.find_producer(stacked_value, "Concat");
    const size_t axis = get_direction_axis(node, false);
    if (!concat || use_def_.find_only_reader(stacked_value) != &node || concat->inputs.size() != 2 || !is_along_axis(*concat, axis, 3))
      return;
    if (!std::ranges::all_of(concat->inputs, [&](ValueId direction_value) { return has_size_one(direction_value, axis); })) return;
    node.inputs.resize(std::max(node.inputs.size(), input + kBackward + 1), kAbsent);
    node.inputs[input] = concat->inputs[0];
    node.inputs[input + kBackward] = concat->inputs[1];
    mark_fused_node(*concat, node);
  }

  void fuse_output_reader(ProgramNode& node, size_t output) {
    const ValueId stacked_value = node.outputs[output];
    const ProgramNode* reader = use_def_.find_only_reader(stacked_value);
    if (!reader || reader->inputs[0] != stacked_value) return;
    if (reader->row->name == "Split") fuse_split(node, output, *reader);
    if (reader->row->name == "Transpose" && output == 0) fuse_transpose(node, *reader);
  }

  void fuse_split(ProgramNode& node, size_t output, const ProgramNode& split) {
    const bool is_y = output == 0;
    const size_t axis = get_direction_axis(node, is_y);
    if (split.outputs.size() != 2 || !is_along_axis(split, axis, is_y ? 4 : 3)) return;
    if (!std::ranges::all_of(split.outputs,
                             [&](ValueId direction_value) { return direction_value == kAbsent || has_size_one(direction_value, axis); }))
      return;
    node.outputs.resize(std::max(node.outputs.size(), output + kBackward + 1), kAbsent);
    node.outputs[output] = split.outputs[0];
    node.outputs[output + kBackward] = split.outputs[1];
    node.attributes.set(kSeparateDirections, node.attributes.integer(kSeparateDirections, 0) | int64_t{1} << output);
    mark_fused_node(split, node);
  }

  // Makes the node write Y as [steps, batch, directions, units]. The last two axes are usually merged afterwards.
  void fuse_transpose(ProgramNode& node, const ProgramNode& transpose) {
    if (node.attributes.integer("layout", 0) != 0 || transpose.attributes.integers("perm") != std::vector<int64_t>{0, 2, 1, 3}) return;
    node.outputs[0] = transpose.outputs[0];
    node.attributes.set(kBatchBeforeDirections, int64_t{1});
    mark_fused_node(transpose, node);
  }

  ProgramGraph& graph_;
  UseDefChains use_def_;
  std::vector<bool> removed_;
};

}  // namespace

void fuse_bidirectional_rnn(ProgramGraph& graph, const FusionSet& fusions) {
  if (!fusions.has(Fusion::recurrent) || std::ranges::none_of(graph.nodes, is_bidirectional_rnn)) return;
  BidirectionalRnnFusion fusion(graph);
  for (ProgramNode& node : graph.nodes)
    if (is_bidirectional_rnn(node)) fusion.fuse_layer(node);
  fusion.erase_fused_nodes();
}

}  // namespace pumice
