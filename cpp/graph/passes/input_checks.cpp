#include "graph/passes/input_checks.h"

#include <algorithm>

#include "graph/description/shape_inference.h"
#include "graph/passes/index_checks.h"
#include "operators/host/host_evaluate.h"

namespace pumice {
namespace {

constexpr size_t kMaxChainNodes = 32;  // maximum number of nodes that the host evaluates at every call

// Whether the node only moves or casts elements, which the host can do cheaply.
bool is_data_movement_or_cast(const ProgramNode& node) {
  return node.row->casts || node.row->skeleton == KernelKind::view;
}

// Collects the nodes that compute a value from inputs and constants. `moves`: allow only nodes that move or cast elements. Returns false if
// a node is not allowed or the host cannot evaluate it.
bool collect_host_chain(const ProgramGraph& graph, const std::vector<const ProgramNode*>& producers, ValueId value, bool moves,
                        InputCheck& check) {
  if (value == kAbsent || graph.value(value).constant) return true;
  if (const auto input = std::ranges::find(graph.inputs, value); input != graph.inputs.end()) {
    const auto at = static_cast<size_t>(input - graph.inputs.begin());
    if (std::ranges::find(check.inputs, at) == check.inputs.end()) check.inputs.push_back(at);
    return true;
  }
  const ProgramNode* node = producers[to_index(value)];
  if (!node || !node->row->evaluate || check.chain.size() >= kMaxChainNodes || (moves && !is_data_movement_or_cast(*node))) return false;
  const auto is_node = [&](const GraphNode& candidate) { return candidate.name == node->name; };
  if (std::ranges::any_of(check.chain, is_node)) return true;
  for (const ValueId input : node->get_data_inputs())
    if (!collect_host_chain(graph, producers, input, moves, check)) return false;
  check.chain.push_back(*node);
  return true;
}

// Returns the producer of each value; null for inputs and constants.
std::vector<const ProgramNode*> find_producers_by_value(const ProgramGraph& graph) {
  std::vector<const ProgramNode*> producers(graph.values.size(), nullptr);
  for (const ProgramNode& candidate : graph.nodes)
    for (const ValueId output : candidate.outputs)
      if (output != kAbsent) producers[to_index(output)] = &candidate;
  return producers;
}

void check_index_values(const ProgramGraph& graph, const InputCheck& check, const CheckedInputs& bound, const std::byte* indices) {
  const TensorDesc& desc = *bound.descs[check.list];
  const OutOfBoundsIndices found = find_out_of_bounds(bound.bounds, desc, indices);
  if (found.count == 0) return;
  const std::string& value = graph.value(check.node.inputs[check.list]).name;
  throw_index_error({check.node.name, value, bound.bounds, desc.shape, false}, found.count, found.position, found.index,
                    std::to_string(found.index));
}

}  // namespace

std::vector<InputCheck> find_input_checks(const ProgramGraph& graph) {
  std::vector<InputCheck> checks;
  std::vector<const ProgramNode*> producers;  // computed on first use
  const auto add = [&](const ProgramNode& node, size_t list, bool moves) -> InputCheck* {
    if (producers.empty()) producers = find_producers_by_value(graph);
    InputCheck check{node, list, {}, {}};
    if (!collect_host_chain(graph, producers, node.inputs[list], moves, check) || check.inputs.empty()) return nullptr;
    return &checks.emplace_back(std::move(check));
  };
  // Check nodes come first, because their messages use the terms of the caller's operation.
  for (const ProgramNode& node : graph.nodes)
    if (node.requirement)
      for (const size_t i : node.requirement->find_inputs_checked_per_call(node.inputs.size())) add(node, i, false);
  for (const ProgramNode& node : graph.nodes) {
    if (!node.row->indices) continue;
    const size_t input = node.row->indices(node.attributes, {}).input;
    if (input >= node.inputs.size() || node.inputs[input] == kAbsent || !is_integer(graph.value(node.inputs[input]).dtype)) continue;
    InputCheck* const check = add(node, input, !node.row->rejects_indices);
    if (check) check->node.name = graph.report[node.report].node;
  }
  return checks;
}

CheckedInputs bind_check_inputs(const InputCheck& check, const ShapeInference& known) {
  CheckedInputs inputs;
  for (const ValueId input : check.node.inputs) {
    const TensorDesc* desc = known.desc(input);
    const HostTensor* elements = known.host_elements(input);
    inputs.descs.push_back(desc ? std::optional(*desc) : std::nullopt);
    inputs.elements.push_back(elements ? std::optional(*elements) : std::nullopt);
  }
  if (check.node.requirement) return inputs;
  std::vector<Shape> shapes;
  for (const auto& desc : inputs.descs) shapes.push_back(desc ? desc->shape : Shape{});
  inputs.bounds = check.node.row->indices(check.node.attributes, shapes);
  return inputs;
}

void check_input(const ProgramGraph& graph, const InputCheck& check, const CheckedInputs& bound, std::span<const Shape> shapes,
                 std::span<const std::byte* const> values) {
  const ValueId list = check.node.inputs[check.list];
  if (std::ranges::any_of(check.inputs, [&](size_t i) { return i >= values.size() || !values[i]; })) return;
  if (!check.node.requirement && check.chain.empty()) return check_index_values(graph, check, bound, values[check.inputs[0]]);
  ShapeInference known;
  for (const size_t i : check.inputs) {
    const TensorDesc desc(graph.value(graph.inputs[i]).dtype, shapes[i]);
    known.set(graph.inputs[i], desc);
    known.set_host_elements(graph.inputs[i], {desc, {}, values[i]});
  }
  // Moving elements costs no more than reading the list; other nodes are evaluated only for short lists.
  const bool moves = !check.node.requirement && !check.node.row->rejects_indices;
  const int64_t max_elements = moves ? kMaxElements : kMaxHostElements;
  for (const GraphNode& node : check.chain) {
    for (const ValueId input : node.inputs) {
      if (input == kAbsent || !graph.value(input).constant) continue;
      known.set(input, graph.value(input).constant->desc);
      known.set_constant(input, *graph.value(input).constant);
    }
    if (!known.infer_node(node) || !known.evaluate_node(node, max_elements)) return;
  }
  const HostTensor* list_elements = known.host_elements(list);
  if (!list_elements) return;
  if (!check.node.requirement) return check_index_values(graph, check, bound, list_elements->data);
  std::vector<const TensorDesc*> descs;
  std::vector<const HostTensor*> elements;
  for (size_t i = 0; i < bound.descs.size(); ++i) {
    descs.push_back(bound.descs[i] ? &*bound.descs[i] : nullptr);
    elements.push_back(i == check.list ? list_elements : bound.elements[i] ? &*bound.elements[i] : nullptr);
  }
  check.node.requirement->check(descs, elements);
}

}  // namespace pumice
