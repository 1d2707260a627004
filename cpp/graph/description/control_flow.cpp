// IF and WHILE nodes: checks (get_graph_rules()) and shape inference.
#include <algorithm>
#include <functional>

#include "core/error.h"
#include "graph/description/compound_operation.h"
#include "graph/description/graph.h"
#include "graph/description/shape_inference.h"
#include "graph/description/trial_tensor_desc.h"

namespace pumice {
namespace {

using Shapes = std::vector<std::optional<Shape>>;

std::string format_count(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

const GraphValue& get_graph_input(const Graph& graph, size_t i) {
  return graph.value(graph.inputs()[i]);
}
const GraphValue& get_graph_output(const Graph& graph, size_t j) {
  return graph.value(graph.outputs()[j].second);
}

bool may_be_equal(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b) return true;
  return std::equal(a->begin(), a->end(), b->begin(), b->end(),
                    [](int64_t x, int64_t y) { return x == y || x == kUnknownSize || y == kUnknownSize; });
}

// Whether a value outside an IF or WHILE may be passed as the value inside.
bool are_compatible(const GraphValue& a, const GraphValue& b) {
  return a.dtype == b.dtype && may_be_equal(a.shape, b.shape) && a.quantization == b.quantization;
}

// Returns the shape of a value that may have either shape: sizes that differ become unknown.
std::optional<Shape> discard_unequal_sizes(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b || a->size() != b->size()) return {};
  Shape shape = *a;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != (*b)[axis]) shape[axis] = kUnknownSize;
  return shape;
}

// Merges two shapes of the same value: each fills in the unknown sizes of the other.
std::optional<Shape> merge_known_sizes(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b) return a ? a : b;
  Shape shape = *a;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] == kUnknownSize) shape[axis] = (*b)[axis];
  return shape;
}

void check_condition(const GraphValue& condition, const std::string& user, const std::string& role) {
  if (condition.dtype != DType::bool_ || condition.shape != Shape{1})
    throw GraphError(user, role + ": expected bool[1], given '" + condition.name + "' " + to_string(condition), "B2.1");
}

// Checks the rules of an IF or WHILE node. Error messages name the node.
struct ControlFlowChecker {
  const std::string& node;

  void check_count(size_t expected, size_t actual, const std::string& subject, const char* rule) const {
    if (expected != actual)
      throw GraphError(node, subject + ": expected " + std::to_string(expected) + ", given " + std::to_string(actual), rule);
  }
  void check_compatible(const GraphValue& expected, const GraphValue& actual, const std::string& subject, const char* rule) const {
    if (!are_compatible(expected, actual))
      throw GraphError(
          node,
          subject + ": expected '" + expected.name + "' " + to_string(expected) + ", given '" + actual.name + "' " + to_string(actual),
          rule);
  }
  // Checks the inputs of a graph against the inputs of the node that runs it.
  void check_inputs(const Graph& graph, const std::string& role, const std::vector<const GraphValue*>& actual, const char* rule) const {
    check_count(graph.inputs().size(), actual.size(), "inputs of " + role + " '" + graph.name() + "'", rule);
    for (size_t i = 0; i < actual.size(); ++i)
      check_compatible(get_graph_input(graph, i), *actual[i], "input " + std::to_string(i) + " of " + role + " '" + graph.name() + "'",
                       rule);
  }
  // Checks the outputs of a loop body against the inputs that they update.
  void check_body_outputs(const Graph& body, const ControlFlow& flow) const {
    const size_t expected = flow.carried + flow.state;
    if (body.outputs().size() != expected)
      throw GraphError(node,
                       "outputs of body '" + body.name() + "': expected " + std::to_string(expected) + " (" +
                           format_count(flow.carried, "carried value") + ", " + format_count(flow.state, "state value") + "), given " +
                           std::to_string(body.outputs().size()),
                       "B2.5");
    for (size_t i = 0; i < expected; ++i)
      check_compatible(get_graph_input(body, i), get_graph_output(body, i),
                       "output " + std::to_string(i) + " of body '" + body.name() + "'", "B2.5");
  }
};

// Sets the inputs and constants of a graph in `known`, with the sizes of one trial for unknown sizes.
void set_known_values(const Graph& graph, const Shapes& input_shapes, size_t trial, ShapeInference& known) {
  for (size_t i = 0; i < input_shapes.size(); ++i)
    if (const auto shape = merge_known_sizes(input_shapes[i], get_graph_input(graph, i).shape))
      set_trial_desc(known, graph.inputs()[i], get_graph_input(graph, i).dtype, *shape, trial);
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const auto& constant = graph.values()[i].constant;
    if (constant) known.set(static_cast<ValueId>(i), constant->desc), known.set_host_elements(static_cast<ValueId>(i), *constant);
  }
}

// Infers the outputs of a node without control flow. `is_final`: the input shapes are not trial sizes. Returns false if the outputs have
// trial sizes.
bool infer_node(const Graph& graph, const GraphNode& node, bool is_final, size_t trial, ShapeInference& known) {
  if (is_final) known.check_requirement(node);
  const bool is_open = !is_final && has_size_dependent_rank(graph, node);
  const bool deferred = is_deferred(node);
  bool succeeded = false;
  try {
    if (deferred) {
      succeeded = node.compound->infer_deferred_shapes(graph, node, known);
    } else if (!is_open) {
      succeeded = known.infer_node(node);
      if (succeeded) known.evaluate_node(node);
    }
  } catch (const UnsupportedError&) {
    throw;  // dtype and attribute errors do not depend on sizes
  } catch (const Error&) {
    const bool reads_elements = node.row->host_inputs != 0;  // its elements are not known yet
    if (is_final && !reads_elements) throw;
    succeeded = false;
  }
  if (!succeeded && !deferred && !is_open) known.assume_output_shape(node, graph.value(node.outputs[0]).dtype, trial);
  for (const ValueId output : node.outputs)
    if (const auto& shape = graph.value(output).shape; !known.desc(output) && shape)
      set_trial_desc(known, output, graph.value(output).dtype, *shape, trial);
  return succeeded;
}

// Infers a graph in one trial, except the outputs of control nodes. `exact`: the input sizes hold in every call. A violated shape rule is
// an error only if all inputs of the node are exact; otherwise the trial has no result.
void infer_graph(const Graph& graph, bool exact, size_t trial, ShapeInference& known) {
  std::vector<bool> is_trial(graph.values().size(), false);
  for (const ValueId input : graph.inputs()) is_trial[static_cast<size_t>(input)] = !exact;
  for (const GraphNode& node : graph.nodes()) {
    const bool is_final =
        exact && std::ranges::none_of(node.inputs, [&](ValueId id) { return id != kAbsent && is_trial[static_cast<size_t>(id)]; });
    const bool inferred = !node.control && infer_node(graph, node, is_final, trial, known) && is_final;
    for (const ValueId output : node.outputs) {
      if (output == kAbsent) continue;
      const GraphValue& value = graph.value(output);
      if (node.control && value.shape)
        set_trial_desc(known, output, value.dtype, *value.shape, trial);  // this shape is known whatever the input shapes are
      is_trial[static_cast<size_t>(output)] = !inferred && !(node.control && exact && value.is_known());
    }
  }
}

// Returns the output shapes of a graph for these input shapes. Throws GraphError if all input shapes are known and a node rejects them.
Shapes infer_output_shapes(const Graph& graph, const Shapes& input_shapes) {
  Shapes declared;
  for (size_t j = 0; j < graph.outputs().size(); ++j) declared.push_back(get_graph_output(graph, j).shape);
  const auto is_known = [](const std::optional<Shape>& shape) { return shape && std::ranges::find(*shape, kUnknownSize) == shape->end(); };
  const bool assumed = std::ranges::any_of(graph.inputs(), [&](ValueId id) { return graph.value(id).assumed; });
  const bool exact = !assumed && std::ranges::all_of(input_shapes, is_known);
  // Known output sizes do not prove that the nodes accept the input sizes, which were unknown when the nodes were added.
  const bool knows_more = exact && !std::ranges::all_of(graph.inputs(), [&](ValueId id) { return is_known(graph.value(id).shape); });
  if (!knows_more && std::ranges::all_of(declared, is_known)) return declared;
  ShapeInference trials[kTrials];
  for (size_t t = 0; t < kTrials; ++t) {
    ShapeInference& known = trials[t];
    set_known_values(graph, input_shapes, t, known);
    known.set_uses_trial_sizes(!exact);
    infer_graph(graph, exact, t, known);
  }
  Shapes shapes;
  for (size_t j = 0; j < declared.size(); ++j) {
    const ValueId value = graph.outputs()[j].second;
    std::array<const TensorDesc*, kTrials> descs = {};
    for (size_t t = 0; t < kTrials; ++t) descs[t] = trials[t].desc(value);
    const auto common = find_common_shape(descs);
    shapes.push_back(common ? common : declared[j]);
  }
  return shapes;
}

// Infers the output shapes of a graph that a node runs. A mismatch is reported as a violation of `rule`, the rule about the operands of the
// node.
Shapes infer_inner_outputs(const std::string& node, std::string_view role, const Graph& graph, const Shapes& input_shapes,
                           const char* rule) {
  try {
    return infer_output_shapes(graph, input_shapes);
  } catch (const GraphError& error) {
    throw GraphError(
        node, std::string(role) + (graph.name().empty() ? "" : " '" + graph.name() + "'") + " cannot run on these inputs: " + error.what(),
        rule);
  }
}

// Returns the shapes of the carried and state values that hold after any number of iterations, including zero.
Shapes infer_loop_shapes(const std::string& node, const Graph& body, const Shapes& input_shapes) {
  const size_t num_state = body.outputs().size();
  Shapes state = input_shapes;
  Shapes next = infer_inner_outputs(node, "body", body, state, "B2.5");
  for (;;) {
    bool same = true;
    for (size_t i = 0; i < num_state; ++i) {
      auto combined = discard_unequal_sizes(state[i], next[i]);
      same = same && combined == state[i];
      state[i] = std::move(combined);
    }
    if (same) break;
    next = infer_output_shapes(body, state);  // terminates: each pass has fewer known sizes
  }
  state.resize(num_state);
  return state;
}

}  // namespace

void Graph::check_required_values(const std::vector<ValueId>& values, const std::string& user) const {
  for (const ValueId operand : values) {
    if (operand == kAbsent) throw GraphError(user, "expected a value, given None: inputs of a graph are not optional", "B2.13");
    check_value(operand, user);
  }
}

// Checks and finishes a graph that a node will run.
void Graph::check_and_finish_subgraph(const std::shared_ptr<Graph>& graph, std::string_view role, const std::string& user) const {
  const std::string format_role_name(role);
  if (!graph) throw GraphError(user, format_role_name + ": expected a Graph, given None", "B2.11");
  if (graph.get() == this) throw GraphError(user, format_role_name + ": graph '" + name_ + "' would run itself", "B2.8");
  if (graph->outputs().empty())
    throw StateError("'" + user + "': " + format_role_name + " '" + graph->name() + "' cannot be finished: it has no output", "B2.11");
  const auto reject = [&](const std::string& message) {
    throw GraphError(user, format_role_name + " '" + graph->name() + "': " + message, "B2.9");
  };
  if (graph->nodes().empty()) reject("expected at least one node, given none");
  std::vector<bool> is_listed(graph->values().size(), false);
  for (const auto& [output_name, id] : graph->outputs()) {
    const GraphValue& output = graph->value(id);
    if (output.constant) reject("output '" + output_name + "' is a constant; a node (Identity) must produce it");
    if (output.producer < 0) reject("output '" + output_name + "' is an input; a node (Identity) must produce it");
    if (is_listed[static_cast<size_t>(id)]) reject("value '" + output.name + "' is listed as an output twice");
    is_listed[static_cast<size_t>(id)] = true;
  }
  for (const ValueId id : graph->inputs())
    if (graph->value(id).owned) throw GraphError(graph->value(id).name, "an owned input is an input of the outermost graph", "O6");
  graph->finish();
}

std::vector<ValueId> Graph::append_control_node(GraphNode node, std::vector<GraphValue> output_values) {
  for (size_t i = 0; i < output_values.size(); ++i) {
    exact_ = exact_ && output_values[i].is_known();
    for (size_t t = 0; t < kTrials && output_values[i].shape; ++t)
      set_trial_desc(*trials_[t], node.outputs[i], output_values[i].dtype, *output_values[i].shape, t);
  }
  return append(std::move(node), std::move(output_values));
}

std::vector<ValueId> Graph::if_(ValueId condition, const std::shared_ptr<Graph>& then, const std::shared_ptr<Graph>& orelse,
                                std::vector<ValueId> inputs, std::string name, std::vector<std::string> output_names) {
  check_not_finished();
  GraphNode node;
  node.name = choose_node_name("If", std::move(name));
  check_and_finish_subgraph(then, "then", node.name);
  check_and_finish_subgraph(orelse, "else", node.name);
  if (condition != kAbsent) {
    check_value(condition, node.name);
    check_condition(value(condition), node.name, "condition");
  }
  check_required_values(inputs, node.name);
  const ControlFlowChecker checker{node.name};
  std::vector<const GraphValue*> operands;
  Shapes shapes;
  for (const ValueId input : inputs) operands.push_back(&value(input)), shapes.push_back(value(input).shape);
  checker.check_inputs(*then, "then", operands, "B2.3");
  checker.check_inputs(*orelse, "else", operands, "B2.3");
  checker.check_count(then->outputs().size(), orelse->outputs().size(), "outputs of else '" + orelse->name() + "', as many as of then",
                      "B2.3");
  for (size_t j = 0; j < then->outputs().size(); ++j) {
    const GraphValue &a = get_graph_output(*then, j), &b = get_graph_output(*orelse, j);
    if (a.dtype != b.dtype || a.quantization != b.quantization)
      throw GraphError(
          node.name,
          "output " + std::to_string(j) + ": then '" + a.name + "' is " + to_string(a) + ", but else '" + b.name + "' is " + to_string(b),
          "B2.3");
  }
  const Shapes first = infer_inner_outputs(node.name, "then", *then, shapes, "B2.3"),
               second = infer_inner_outputs(node.name, "else", *orelse, shapes, "B2.3");
  node.inputs.push_back(condition);
  node.inputs.insert(node.inputs.end(), inputs.begin(), inputs.end());
  node.control = std::make_shared<ControlFlow>(ControlFlow{ControlFlow::NodeKind::if_, then, orelse});
  std::vector<GraphValue> output_values = name_outputs(node, then->outputs().size(), output_names);
  for (size_t j = 0; j < output_values.size(); ++j) {
    output_values[j].dtype = get_graph_output(*then, j).dtype, output_values[j].quantization = get_graph_output(*then, j).quantization;
    output_values[j].shape = discard_unequal_sizes(first[j], second[j]);
  }
  return append_control_node(std::move(node), std::move(output_values));
}

std::vector<ValueId> Graph::while_(const std::shared_ptr<Graph>& condition, const std::shared_ptr<Graph>& body, LoopValues values,
                                   std::string name, std::vector<std::string> output_names) {
  check_not_finished();
  GraphNode node;
  node.name = choose_node_name("While", std::move(name));
  check_and_finish_subgraph(condition, "condition", node.name);
  check_and_finish_subgraph(body, "body", node.name);
  ControlFlow flow{ControlFlow::NodeKind::while_, condition, body, values.carried.size(), values.state.size(), values.invariant.size()};
  node.inputs = std::move(values.carried);
  for (const auto* more : {&values.state, &values.invariant}) node.inputs.insert(node.inputs.end(), more->begin(), more->end());
  check_required_values(node.inputs, node.name);
  const ControlFlowChecker checker{node.name};
  if (flow.carried == 0) throw GraphError(node.name, "expected at least one carried value, given none", "B2.5");
  std::vector<const GraphValue*> operands;
  Shapes shapes;
  for (const ValueId input : node.inputs) operands.push_back(&value(input)), shapes.push_back(value(input).shape);
  checker.check_inputs(*condition, "condition", operands, "B2.4");
  checker.check_count(1, condition->outputs().size(), "outputs of condition '" + condition->name() + "'", "B2.4");
  check_condition(get_graph_output(*condition, 0), node.name, "output of condition '" + condition->name() + "'");
  checker.check_inputs(*body, "body", operands, "B2.5");
  checker.check_body_outputs(*body, flow);
  const Shapes results = infer_loop_shapes(node.name, *body, shapes);
  node.control = std::make_shared<ControlFlow>(std::move(flow));
  std::vector<GraphValue> output_values = name_outputs(node, node.control->carried, output_names);
  for (size_t i = 0; i < output_values.size(); ++i) {
    output_values[i].dtype = operands[i]->dtype;
    output_values[i].quantization = operands[i]->quantization;
    output_values[i].shape = results[i];
  }
  return append_control_node(std::move(node), std::move(output_values));
}

}  // namespace pumice
