// IF and WHILE nodes: checks (graph_rules()) and shape inference.
#include <algorithm>
#include <functional>

#include "core/error.h"
#include "graph/description/compound_operation.h"
#include "graph/description/graph.h"
#include "graph/description/shape_inference.h"
#include "graph/description/trial_desc.h"

namespace pumice {
namespace {

using Shapes = std::vector<std::optional<Shape>>;

std::string count_text(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

const GraphValue& input_of(const Graph& graph, size_t i) {
  return graph.value(graph.inputs()[i]);
}
const GraphValue& output_of(const Graph& graph, size_t j) {
  return graph.value(graph.outputs()[j].second);
}

bool may_be_equal(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b) return true;
  return std::equal(a->begin(), a->end(), b->begin(), b->end(),
                    [](int64_t x, int64_t y) { return x == y || x == kUnknownSize || y == kUnknownSize; });
}

// Whether a value outside and a value inside an IF or WHILE may be the same value.
bool are_compatible(const GraphValue& a, const GraphValue& b) {
  return a.dtype == b.dtype && may_be_equal(a.shape, b.shape) && a.quantization == b.quantization;
}

// Returns the shape of a value that has either of two shapes: differing sizes are unknown.
std::optional<Shape> keep_equal_sizes(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b || a->size() != b->size()) return {};
  Shape shape = *a;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] != (*b)[axis]) shape[axis] = kUnknownSize;
  return shape;
}

// Returns the shape of a value that has both shapes: each fills in the other's unknown sizes.
std::optional<Shape> merge_known_sizes(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b) return a ? a : b;
  Shape shape = *a;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] == kUnknownSize) shape[axis] = (*b)[axis];
  return shape;
}

void check_condition(const GraphValue& condition, const std::string& user, const std::string& what) {
  if (condition.dtype != DType::bool_ || condition.shape != Shape{1})
    throw GraphError(user, what + ": bool[1] expected, given '" + condition.name + "' " + to_string(condition), "B2.1");
}

// Checks the rules of one node, named in messages.
struct Checker {
  const std::string& node;

  void count(size_t expected, size_t actual, const std::string& what, const char* rule) const {
    if (expected != actual)
      throw GraphError(node, what + ": " + std::to_string(expected) + " expected, given " + std::to_string(actual), rule);
  }
  void compatible(const GraphValue& expected, const GraphValue& actual, const std::string& what, const char* rule) const {
    if (!are_compatible(expected, actual))
      throw GraphError(
          node, what + ": '" + expected.name + "' " + to_string(expected) + " expected, given '" + actual.name + "' " + to_string(actual),
          rule);
  }
  // Checks the graph's inputs against the node's.
  void inputs(const Graph& graph, const std::string& role, const std::vector<const GraphValue*>& actual, const char* rule) const {
    count(graph.inputs().size(), actual.size(), "inputs of " + role + " '" + graph.name() + "'", rule);
    for (size_t i = 0; i < actual.size(); ++i)
      compatible(input_of(graph, i), *actual[i], "input " + std::to_string(i) + " of " + role + " '" + graph.name() + "'", rule);
  }
  // Checks the outputs of a loop's body against the inputs that they update.
  void body_outputs(const Graph& body, const ControlFlow& flow) const {
    const size_t expected = flow.carried + flow.state;
    if (body.outputs().size() != expected)
      throw GraphError(node,
                       "outputs of body '" + body.name() + "': " + std::to_string(expected) + " expected (" +
                           count_text(flow.carried, "carried value") + ", " + count_text(flow.state, "state value") + "), given " +
                           std::to_string(body.outputs().size()),
                       "B2.5");
    for (size_t i = 0; i < expected; ++i)
      compatible(input_of(body, i), output_of(body, i), "output " + std::to_string(i) + " of body '" + body.name() + "'", "B2.5");
  }
};

// Sets the inputs and constants of a graph in `known`, for one trial of unknown sizes.
void set_known(const Graph& graph, const Shapes& input_shapes, size_t trial, ShapeInference& known) {
  for (size_t i = 0; i < input_shapes.size(); ++i)
    if (const auto shape = merge_known_sizes(input_shapes[i], input_of(graph, i).shape))
      set_trial(known, graph.inputs()[i], input_of(graph, i).dtype, *shape, trial);
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const auto& constant = graph.values()[i].constant;
    if (constant) known.set(static_cast<ValueId>(i), constant->desc), known.set_host(static_cast<ValueId>(i), *constant);
  }
}

// Infers the outputs of a node without control flow; `is_final`: its inputs have their final shapes. Returns false if the outputs have
// trial sizes.
bool infer_node(const Graph& graph, const GraphNode& node, bool is_final, size_t trial, ShapeInference& known) {
  if (is_final) known.check(node);
  const bool is_open = !is_final && has_open_rank(graph, node);
  const bool deferred = is_deferred(node);
  bool succeeded = false;
  try {
    if (deferred) {
      succeeded = node.compound->infer_deferred_shapes(graph, node, known);
    } else if (!is_open) {
      succeeded = known.run(node);
      if (succeeded) known.evaluate(node);
    }
  } catch (const UnsupportedError&) {
    throw;  // dtype and attribute errors hold for all sizes
  } catch (const Error&) {
    const bool reads_elements = node.row->host_inputs != 0;  // the elements are not known yet
    if (is_final && !reads_elements) throw;
    succeeded = false;
  }
  if (!succeeded && !deferred && !is_open) known.assume(node, graph.value(node.outputs[0]).dtype, trial);
  for (const ValueId output : node.outputs)
    if (const auto& shape = graph.value(output).shape; !known.desc(output) && shape)
      set_trial(known, output, graph.value(output).dtype, *shape, trial);
  return succeeded;
}

// Infers a graph in one trial, except the outputs of control nodes; `exact`: the input sizes hold in every call. A violated shape rule is
// an error if all of the node's inputs are exact; otherwise the trial gives no result.
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
      if (node.control && value.shape) set_trial(known, output, value.dtype, *value.shape, trial);  // shape as known without these inputs
      is_trial[static_cast<size_t>(output)] = !inferred && !(node.control && exact && value.is_known());
    }
  }
}

// Returns the shapes of a graph's outputs for these input shapes. Throws GraphError if all are known and a node rejects them.
Shapes infer_output_shapes(const Graph& graph, const Shapes& input_shapes) {
  Shapes declared;
  for (size_t j = 0; j < graph.outputs().size(); ++j) declared.push_back(output_of(graph, j).shape);
  const auto is_known = [](const std::optional<Shape>& shape) { return shape && std::ranges::find(*shape, kUnknownSize) == shape->end(); };
  const bool assumed = std::ranges::any_of(graph.inputs(), [&](ValueId id) { return graph.value(id).assumed; });
  const bool exact = !assumed && std::ranges::all_of(input_shapes, is_known);
  // Known output sizes do not prove that the nodes accept the input sizes, which were unknown when the nodes were added.
  const bool knows_more = exact && !std::ranges::all_of(graph.inputs(), [&](ValueId id) { return is_known(graph.value(id).shape); });
  if (!knows_more && std::ranges::all_of(declared, is_known)) return declared;
  ShapeInference trials[kTrials];
  for (size_t t = 0; t < kTrials; ++t) {
    ShapeInference& known = trials[t];
    set_known(graph, input_shapes, t, known);
    known.set_uses_trial_sizes(!exact);
    infer_graph(graph, exact, t, known);
  }
  Shapes shapes;
  for (size_t j = 0; j < declared.size(); ++j) {
    const ValueId value = graph.outputs()[j].second;
    std::array<const TensorDesc*, kTrials> descs = {};
    for (size_t t = 0; t < kTrials; ++t) descs[t] = trials[t].desc(value);
    const auto common = common_shape(descs);
    shapes.push_back(common ? common : declared[j]);
  }
  return shapes;
}

// Deduces the output shapes of a graph that a node runs; a mismatch violates the rule about the node's operands.
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

// Returns the shapes of carried and state values that hold after any number of iterations, including zero.
Shapes loop_shapes(const std::string& node, const Graph& body, const Shapes& input_shapes) {
  const size_t num_state = body.outputs().size();
  Shapes state = input_shapes;
  Shapes next = infer_inner_outputs(node, "body", body, state, "B2.5");
  for (;;) {
    bool same = true;
    for (size_t i = 0; i < num_state; ++i) {
      auto combined = keep_equal_sizes(state[i], next[i]);
      same = same && combined == state[i];
      state[i] = std::move(combined);
    }
    if (same) break;
    next = infer_output_shapes(body, state);  // each pass has fewer known sizes
  }
  state.resize(num_state);
  return state;
}

}  // namespace

void Graph::check_values(const std::vector<ValueId>& values, const std::string& user) const {
  for (const ValueId operand : values) {
    if (operand == kAbsent) throw GraphError(user, "a value is expected, given None: nothing of what a graph runs on is optional", "B2.13");
    check_value(operand, user);
  }
}

// Checks and finishes a graph that a node will run.
void Graph::check_referenced(const std::shared_ptr<Graph>& graph, std::string_view role, const std::string& user) const {
  const std::string what(role);
  if (!graph) throw GraphError(user, what + ": a Graph expected, given None", "B2.11");
  if (graph.get() == this) throw GraphError(user, what + ": graph '" + name_ + "' would run itself", "B2.8");
  if (graph->outputs().empty())
    throw StateError("'" + user + "': " + what + " '" + graph->name() + "' cannot be finished: it has no output", "B2.11");
  const auto reject = [&](const std::string& message) { throw GraphError(user, what + " '" + graph->name() + "': " + message, "B2.9"); };
  if (graph->nodes().empty()) reject("at least one node expected, given none");
  std::vector<bool> is_listed(graph->values().size(), false);
  for (const auto& [output_name, id] : graph->outputs()) {
    const GraphValue& output = graph->value(id);
    if (output.constant) reject("output '" + output_name + "' is a constant; a node (Identity) has to make it");
    if (output.producer < 0) reject("output '" + output_name + "' is an input; a node (Identity) has to make it");
    if (is_listed[static_cast<size_t>(id)]) reject("value '" + output.name + "' is listed as an output twice");
    is_listed[static_cast<size_t>(id)] = true;
  }
  for (const ValueId id : graph->inputs())
    if (graph->value(id).owned) throw GraphError(graph->value(id).name, "an owned input is an input of the outermost graph", "O6");
  graph->finish();
}

std::vector<ValueId> Graph::append_control(GraphNode node, std::vector<GraphValue> output_values) {
  for (size_t i = 0; i < output_values.size(); ++i) {
    exact_ = exact_ && output_values[i].is_known();
    for (size_t t = 0; t < kTrials && output_values[i].shape; ++t)
      set_trial(*trials_[t], node.outputs[i], output_values[i].dtype, *output_values[i].shape, t);
  }
  return append(std::move(node), std::move(output_values));
}

std::vector<ValueId> Graph::if_(ValueId condition, const std::shared_ptr<Graph>& then, const std::shared_ptr<Graph>& orelse,
                                std::vector<ValueId> inputs, std::string name, std::vector<std::string> output_names) {
  check_changeable();
  GraphNode node;
  node.name = node_name("If", std::move(name));
  check_referenced(then, "then", node.name);
  check_referenced(orelse, "else", node.name);
  if (condition != kAbsent) {
    check_value(condition, node.name);
    check_condition(value(condition), node.name, "condition");
  }
  check_values(inputs, node.name);
  const Checker check{node.name};
  std::vector<const GraphValue*> operands;
  Shapes shapes;
  for (const ValueId input : inputs) operands.push_back(&value(input)), shapes.push_back(value(input).shape);
  check.inputs(*then, "then", operands, "B2.3");
  check.inputs(*orelse, "else", operands, "B2.3");
  check.count(then->outputs().size(), orelse->outputs().size(), "outputs of else '" + orelse->name() + "', as many as of then", "B2.3");
  for (size_t j = 0; j < then->outputs().size(); ++j) {
    const GraphValue &a = output_of(*then, j), &b = output_of(*orelse, j);
    if (a.dtype != b.dtype || a.quantization != b.quantization)
      throw GraphError(node.name,
                       "output " + std::to_string(j) + ": '" + a.name + "' of then is " + to_string(a) + ", but '" + b.name + "' of else " +
                           to_string(b),
                       "B2.3");
  }
  const Shapes first = infer_inner_outputs(node.name, "then", *then, shapes, "B2.3"),
               second = infer_inner_outputs(node.name, "else", *orelse, shapes, "B2.3");
  node.inputs.push_back(condition);
  node.inputs.insert(node.inputs.end(), inputs.begin(), inputs.end());
  node.control = std::make_shared<ControlFlow>(ControlFlow{ControlFlow::Kind::if_, then, orelse});
  std::vector<GraphValue> output_values = name_outputs(node, then->outputs().size(), output_names);
  for (size_t j = 0; j < output_values.size(); ++j) {
    output_values[j].dtype = output_of(*then, j).dtype;
    output_values[j].quantization = output_of(*then, j).quantization;
    output_values[j].shape = keep_equal_sizes(first[j], second[j]);
  }
  return append_control(std::move(node), std::move(output_values));
}

std::vector<ValueId> Graph::while_(const std::shared_ptr<Graph>& condition, const std::shared_ptr<Graph>& body, LoopValues values,
                                   std::string name, std::vector<std::string> output_names) {
  check_changeable();
  GraphNode node;
  node.name = node_name("While", std::move(name));
  check_referenced(condition, "condition", node.name);
  check_referenced(body, "body", node.name);
  ControlFlow flow{ControlFlow::Kind::while_, condition, body, values.carried.size(), values.state.size(), values.invariant.size()};
  node.inputs = std::move(values.carried);
  for (const auto* more : {&values.state, &values.invariant}) node.inputs.insert(node.inputs.end(), more->begin(), more->end());
  check_values(node.inputs, node.name);
  const Checker check{node.name};
  if (flow.carried == 0) throw GraphError(node.name, "at least one carried value expected, given none", "B2.5");
  std::vector<const GraphValue*> operands;
  Shapes shapes;
  for (const ValueId input : node.inputs) operands.push_back(&value(input)), shapes.push_back(value(input).shape);
  check.inputs(*condition, "condition", operands, "B2.4");
  check.count(1, condition->outputs().size(), "outputs of condition '" + condition->name() + "'", "B2.4");
  check_condition(output_of(*condition, 0), node.name, "output of condition '" + condition->name() + "'");
  check.inputs(*body, "body", operands, "B2.5");
  check.body_outputs(*body, flow);
  const Shapes results = loop_shapes(node.name, *body, shapes);
  node.control = std::make_shared<ControlFlow>(std::move(flow));
  std::vector<GraphValue> output_values = name_outputs(node, node.control->carried, output_names);
  for (size_t i = 0; i < output_values.size(); ++i) {
    output_values[i].dtype = operands[i]->dtype;
    output_values[i].quantization = operands[i]->quantization;
    output_values[i].shape = results[i];
  }
  return append_control(std::move(node), std::move(output_values));
}

}  // namespace pumice
