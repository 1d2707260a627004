#include "graph/passes/fuse_bidirectional_rnn.h"

#include <algorithm>

#include "graph/passes/use_def_chains.h"
#include "operators/recurrent/recurrent.h"

namespace pumice {
namespace {

bool has_two_directions(const ProgramNode& node) {
  return is_recurrent(*node.row) && recurrent_directions(node.attributes) == 2;
}

class RecurrentJoins {
 public:
  explicit RecurrentJoins(ProgramGraph& graph) : graph_(graph), flow_(graph), gone_(graph.nodes.size(), false) {}

  void join(ProgramNode& node) {
    for (const size_t input : kInitialStates)
      if (input < node.inputs.size()) join_states(node, input);
    const size_t outputs = node.outputs.size();
    for (size_t j = 0; j < outputs; ++j)
      if (node.outputs[j] != kAbsent) join_results(node, j);
  }

  void finish() {
    size_t next = 0;
    std::erase_if(graph_.nodes, [&](const ProgramNode&) { return gone_[next++]; });
  }

 private:
  void take(const ProgramNode& taken, const ProgramNode& into) {
    graph_.absorb(taken.report, into.report, Fusion::recurrent);
    gone_[static_cast<size_t>(&taken - graph_.nodes.data())] = true;
  }

  static size_t directions_of(const ProgramNode& node, bool is_y) {
    return direction_axis(node.attributes.integer("layout", 0) != 0, is_y);
  }

  // Whether the node's axis attribute refers to `axis` of a value with `rank` axes.
  static bool goes_along(const ProgramNode& node, size_t axis, size_t rank) {
    const int64_t given = node.attributes.integer("axis", 0);
    return given == static_cast<int64_t>(axis) || given == static_cast<int64_t>(axis) - static_cast<int64_t>(rank);
  }

  bool is_one(ValueId value, size_t axis) const {
    const auto& shape = graph_.value(value).shape;
    return shape && axis < shape->size() && (*shape)[axis] == 1;
  }

  void join_states(ProgramNode& node, size_t input) {
    const ValueId whole = node.inputs[input];
    if (whole == kAbsent) return;
    const ProgramNode* concat = flow_.producer(whole, "Concat");
    const size_t axis = directions_of(node, false);
    if (!concat || flow_.only_reader(whole) != &node || concat->inputs.size() != 2 || !goes_along(*concat, axis, 3)) return;
    if (!std::ranges::all_of(concat->inputs, [&](ValueId one) { return is_one(one, axis); })) return;
    node.inputs.resize(std::max(node.inputs.size(), input + kBackward + 1), kAbsent);
    node.inputs[input] = concat->inputs[0];
    node.inputs[input + kBackward] = concat->inputs[1];
    take(*concat, node);
  }

  void join_results(ProgramNode& node, size_t output) {
    const ValueId whole = node.outputs[output];
    const ProgramNode* reader = flow_.only_reader(whole);
    if (!reader || reader->inputs[0] != whole) return;
    if (reader->row->name == "Split") join_split(node, output, *reader);
    if (reader->row->name == "Transpose" && output == 0) join_transpose(node, *reader);
  }

  void join_split(ProgramNode& node, size_t output, const ProgramNode& split) {
    const bool is_y = output == 0;
    const size_t axis = directions_of(node, is_y);
    if (split.outputs.size() != 2 || !goes_along(split, axis, is_y ? 4 : 3)) return;
    if (!std::ranges::all_of(split.outputs, [&](ValueId one) { return one == kAbsent || is_one(one, axis); })) return;
    node.outputs.resize(std::max(node.outputs.size(), output + kBackward + 1), kAbsent);
    node.outputs[output] = split.outputs[0];
    node.outputs[output + kBackward] = split.outputs[1];
    node.attributes.set(kApart, node.attributes.integer(kApart, 0) | int64_t{1} << output);
    take(split, node);
  }

  // Makes the node write Y as [steps, batch, directions, units]; the last two axes are usually merged afterwards.
  void join_transpose(ProgramNode& node, const ProgramNode& transpose) {
    if (node.attributes.integer("layout", 0) != 0 || transpose.attributes.integers("perm") != std::vector<int64_t>{0, 2, 1, 3}) return;
    node.outputs[0] = transpose.outputs[0];
    node.attributes.set(kRowsFirst, int64_t{1});
    take(transpose, node);
  }

  ProgramGraph& graph_;
  ValueFlow flow_;
  std::vector<bool> gone_;
};

}  // namespace

void join_recurrences(ProgramGraph& graph, const FusionSet& wanted) {
  if (!wanted.has(Fusion::recurrent) || std::ranges::none_of(graph.nodes, has_two_directions)) return;
  RecurrentJoins joins(graph);
  for (ProgramNode& node : graph.nodes)
    if (has_two_directions(node)) joins.join(node);
  joins.finish();
}

}  // namespace pumice
