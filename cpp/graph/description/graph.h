// A graph of operators: values, nodes and constants. It is validated node by node and compiled into a Program.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/description/graph_node.h"

namespace pumice {

class NamedTrialSizes;
class ShapeInference;

// Initial values of a WHILE. Carried values are updated by each iteration and returned at the end; state is updated but not returned;
// invariants do not change.
struct LoopValues {
  std::vector<ValueId> carried, state = {}, invariant = {};
};

// Optional properties of an input. owned: bound by the initializer of a compiled operator, not by executions (O2). assumed: input of a
// nested graph whose sizes come from trials of the outer graph and need not hold.
struct InputTraits {
  bool owned = false;
  Quantization quantization = {};
  bool assumed = false;
};

// Nodes are added in execution order and checked when they are added. Not thread-safe until finished.
class Graph {
 public:
  explicit Graph(std::string name = {});
  ~Graph();
  Graph(const Graph&) = delete;

  // Add an input or a constant. Throw GraphError if the name is taken or the quantization parameters do not fit the dtype or shape. The
  // quantization parameters of a constant come from its description.
  ValueId input(std::string name, DType dtype, std::optional<Shape> shape, std::vector<std::string> dimension_names = {},
                InputTraits traits = {});
  ValueId constant(HostTensor value, std::string name = {});
  // Adds a node and returns its outputs. Throws UnsupportedError if the operator or a dtype is unknown, GraphError if inputs, attributes or
  // known shapes are wrong; the graph is then unchanged.
  std::vector<ValueId> add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {}, size_t outputs = 1,
                           std::string name = {}, std::vector<std::string> output_names = {});
  // Adds an operation that expands to several nodes; the node that computes output 0 gets the name. Returns all outputs; `outputs` must be
  // 1 or the number of outputs. Throws as the other add() does.
  std::vector<ValueId> add(const CompoundOperation& operation, std::vector<ValueId> inputs, const Attributes& attributes = {},
                           size_t outputs = 1, std::string name = {}, std::vector<std::string> output_names = {});
  // Adds a node that runs `then` on the inputs if the condition (bool[1]) is true, else `orelse`. Finishes both graphs. Throws GraphError
  // with the id of the violated rule (get_graph_rules()), StateError if a graph cannot be finished. A missing condition (kAbsent) is an
  // error only when the node runs (B2.13).
  std::vector<ValueId> if_(ValueId condition, const std::shared_ptr<Graph>& then, const std::shared_ptr<Graph>& orelse,
                           std::vector<ValueId> inputs, std::string name = {}, std::vector<std::string> output_names = {});
  // Adds a loop: while condition(carried, state, invariant): carried, state = body(carried, state, invariant). Returns the carried values.
  std::vector<ValueId> while_(const std::shared_ptr<Graph>& condition, const std::shared_ptr<Graph>& body, LoopValues values,
                              std::string name = {}, std::vector<std::string> output_names = {});
  // Copies the nodes that compute a value of another graph, without IF and WHILE, replacing its inputs by `inputs`. Names begin with
  // `name_prefix`. Only the shapes of the copies may be used. Throws GraphError if the nodes reject the inputs; the graph is then
  // unchanged.
  ValueId copy_computation(const Graph& other, ValueId value, const std::vector<ValueId>& inputs, const std::string& name_prefix);
  // Allows 16-bit floats if a program is compiled without an explicit precision. The setting of the outermost graph also applies to nested
  // graphs.
  void set_relaxed_precision(bool relaxed) { relaxed_precision_ = relaxed; }
  bool relaxed_precision() const { return relaxed_precision_; }
  // Sets likely sizes for the unknown sizes of a value (kUnknownSize: no guess). Later nodes are checked with them as with trial sizes.
  void set_shape_hint(ValueId value, const Shape& shape);
  void output(std::string name, ValueId value);
  // Adds a check for a compound operation: a node that returns its first input and runs the check at binding.
  ValueId add_check(std::shared_ptr<const NodeCheck> requirement, std::vector<ValueId> inputs, std::string name);
  // Sets unknown sizes of a value's shape; known sizes do not change.
  void refine_shape(ValueId value, const Shape& shape);
  // Adds a copy of a node of another graph with other inputs. `outputs`: its original outputs, whose names and scales are kept.
  std::vector<ValueId> copy_node(const GraphNode& node, std::vector<ValueId> inputs, const std::vector<const GraphValue*>& outputs);
  void finish();  // idempotent; later changes throw StateError. Throws GraphError if the graph has no outputs.
  bool finished() const { return finished_; }

  // Whether all sizes are known and none depends on elements that the device computes.
  bool has_static_shapes() const { return exact_; }
  const std::string& name() const { return name_; }
  const std::vector<GraphValue>& values() const { return values_; }
  const GraphValue& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  // Returns the elements of a constant, or of a value computed from constants and known sizes; null if unknown.
  const HostTensor* elements(ValueId id) const;
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::vector<ValueId> add_expanded_operation(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                              const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names);
  std::vector<ValueId> add_deferred_operation(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                              const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names);
  std::vector<ValueId> add_data_dependent_node(GraphNode node, std::vector<std::string> output_names);
  void name_output(size_t i, ValueId output, const std::string& name, std::string output_name);
  void truncate_to(size_t nodes, size_t values);  // removes nodes and values from these indices to the end
  ValueId add_value(GraphValue value);
  bool is_name_taken(const std::string& name) const { return value_names_.contains(name) && !generated_names_.contains(name); }
  void free_generated_name(const std::string& name);
  void check_not_finished() const;
  void check_value(ValueId value, const std::string& user) const;
  void infer_node_outputs(const GraphNode& node, std::vector<GraphValue>& outputs);
  void check_constant_indices(const GraphNode& node) const;
  std::string choose_node_name(std::string_view op, std::string requested_name) const;
  static void check_output_names(const std::string& node, size_t count, const std::vector<std::string>& names);
  std::vector<GraphValue> name_outputs(GraphNode& node, size_t count, const std::vector<std::string>& names) const;
  std::vector<ValueId> append(GraphNode node, std::vector<GraphValue> output_values);
  void check_required_values(const std::vector<ValueId>& values, const std::string& user) const;
  void check_and_finish_subgraph(const std::shared_ptr<Graph>& graph, std::string_view role, const std::string& user) const;
  std::vector<ValueId> append_control_node(GraphNode node, std::vector<GraphValue> output_values);

  std::string name_;
  std::vector<GraphValue> values_;
  std::vector<GraphNode> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  std::unordered_set<std::string> value_names_, node_names_;
  std::unordered_map<std::string, ValueId> generated_names_;  // generated names and their values
  // Each trial replaces unknown sizes by other numbers; a size that is equal in all trials is known.
  std::vector<std::unique_ptr<ShapeInference>> trials_;
  std::unique_ptr<NamedTrialSizes> named_trial_sizes_;
  std::deque<HostTensor> constants_;          // constants, to which all trials point
  std::shared_ptr<const NodeOrigin> origin_;  // origin of the nodes that are being added
  bool exact_ = true;                         // no unknown sizes: one trial suffices, and its errors are real errors
  bool finished_ = false, relaxed_precision_ = false;
};

// Adds a constant, quantized if `quantization` has a scale.
ValueId add_quantized_constant(Graph& graph, HostTensor tensor, const Quantization& quantization);

// Whether the rank of the output depends on unknown sizes: for example Squeeze of all axes of size 1, or a list of axes of unknown length.
// Trials cannot cover all possible ranks then.
bool has_size_dependent_rank(const Graph& graph, const GraphNode& node);

}  // namespace pumice
