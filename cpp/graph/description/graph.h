// Values, nodes and constants; validated node by node, compiled into a Program.
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

class NamedTrials;
class ShapeInference;

// The values that a loop is entered with. The results are the last values of what is carried; a state goes from one iteration to the next
// and is no result; what is invariant is the same in all of them.
struct LoopValues {
  std::vector<ValueId> carried, state = {}, invariant = {};
};

// Properties of an input beside its type. owned: a compiled operator's initializer reads it, and executions do not (O2). assumed: the input
// is one of a graph that a node runs; its sizes came out alike for some sizes of the outer graph's inputs, and it may be run on others.
struct InputTraits {
  bool owned = false;
  Quantization quantization = {};
  bool assumed = false;
};

// Grows node by node in an order in which it can run; every node is checked as it is added. Not thread-safe until finished.
class Graph {
 public:
  explicit Graph(std::string name = {});
  ~Graph();
  Graph(const Graph&) = delete;

  // Add a value. Throw GraphError for a name that another value was given, and for parameters of a quantized tensor that do not fit: a
  // scale of its own kind, a zero point that its integers have. A constant's parameters are those of its desc.
  ValueId input(std::string name, DType dtype, std::optional<Shape> shape, std::vector<std::string> dimension_names = {},
                InputTraits traits = {});
  ValueId constant(HostTensor value, std::string name = {});
  // Adds a node. Throws UnsupportedError (no such operator, or dtype) and GraphError (wrong inputs, attributes, shapes where known). The
  // graph is as it was after a refusal.
  std::vector<ValueId> add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {}, size_t outputs = 1,
                           std::string name = {}, std::vector<std::string> output_names = {});
  // Adds an operation that becomes several nodes; the first node that makes an output has the name. The results are the outputs that the
  // operation has; `outputs` is 1 or their number. Throws as the other add().
  std::vector<ValueId> add(const CompoundOperation& operation, std::vector<ValueId> inputs, const Attributes& attributes = {},
                           size_t outputs = 1, std::string name = {}, std::vector<std::string> output_names = {});
  // Runs `then` where the condition (bool[1]) is true, else `orelse`, on the inputs. Both are finished by it, if they are not yet. Throws
  // GraphError with the rule's id (graph_rules()), StateError. No condition (kAbsent) is refused when the node runs (B2.13).
  std::vector<ValueId> if_(ValueId condition, const std::shared_ptr<Graph>& then, const std::shared_ptr<Graph>& orelse,
                           std::vector<ValueId> inputs, std::string name = {}, std::vector<std::string> output_names = {});
  // while condition(carried, state, invariant): carried, state = body(carried, state, invariant). The results are the carried values.
  std::vector<ValueId> while_(const std::shared_ptr<Graph>& condition, const std::shared_ptr<Graph>& body, LoopValues values,
                              std::string name = {}, std::vector<std::string> output_names = {});
  // A copy of what makes a value of another graph, without IF and WHILE, on these values in the place of that graph's inputs. Its nodes are
  // named after `stem`, and nothing but their shapes is to be read. Throws GraphError where they cannot take the values; the graph is then
  // as it was.
  ValueId graft(const Graph& other, ValueId value, const std::vector<ValueId>& inputs, const std::string& stem);
  // Floats may be computed in 16 bits where a program is compiled without a precision of its own. Of the graphs that a node runs, that of
  // the outermost graph holds.
  void set_relaxed_precision(bool relaxed) { relaxed_precision_ = relaxed; }
  bool relaxed_precision() const { return relaxed_precision_; }
  // Tells sizes that a value is likely to have where they are unknown (kUnknownSize: not known here either). Nodes after it are checked
  // with these, as they are with sizes tried.
  void expect(ValueId value, const Shape& shape);
  void output(std::string name, ValueId value);
  // Adds a node for a compound operation: it passes on its first input, which is checked when the program is bound.
  ValueId require(std::shared_ptr<const NodeCheck> requirement, std::vector<ValueId> inputs, std::string name);
  // Tells a value's sizes beyond those that its node tells; sizes that are known stay.
  void refine(ValueId value, const Shape& shape);
  // Adds a node of another graph, with other inputs, as it is there; `outputs` are the values there, whose names and scales they keep.
  std::vector<ValueId> repeat(const GraphNode& node, std::vector<ValueId> inputs, const std::vector<const GraphValue*>& outputs);
  void finish();  // idempotent; later changes throw StateError. Throws GraphError where there is no output.
  bool finished() const { return finished_; }

  // Whether all sizes are known, and none depends on elements that only a device knows.
  bool exact() const { return exact_; }
  const std::string& name() const { return name_; }
  const std::vector<GraphValue>& values() const { return values_; }
  const GraphValue& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  // The elements of a constant, or of a value that follows from constants and known sizes; null where they are not known, or not yet.
  const HostTensor* elements(ValueId id) const;
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::vector<ValueId> add_expanded(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                    const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names);
  std::vector<ValueId> add_late(const CompoundOperation& operation, const std::string& name, std::vector<ValueId> inputs,
                                const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names);
  std::vector<ValueId> add_counted(GraphNode node, std::vector<std::string> output_names);
  void name_output(size_t i, ValueId output, const std::string& name, std::string output_name);
  void truncate(size_t nodes, size_t values);  // forgets what came after
  ValueId add_value(GraphValue value);
  bool is_taken(const std::string& name) const { return value_names_.contains(name) && !chosen_names_.contains(name); }
  void make_way(const std::string& name);
  void check_changeable() const;
  void check_value(ValueId value, const std::string& user) const;
  void infer(const GraphNode& node, std::vector<GraphValue>& outputs);
  void check_constant_indices(const GraphNode& node) const;
  std::string node_name(std::string_view op, std::string given) const;
  static void check_output_names(const std::string& node, size_t count, const std::vector<std::string>& names);
  std::vector<GraphValue> name_outputs(GraphNode& node, size_t count, const std::vector<std::string>& names) const;
  std::vector<ValueId> append(GraphNode node, std::vector<GraphValue> made);
  void check_values(const std::vector<ValueId>& values, const std::string& user) const;
  void check_referenced(const std::shared_ptr<Graph>& graph, std::string_view role, const std::string& user) const;
  std::vector<ValueId> append_control(GraphNode node, std::vector<GraphValue> made);

  std::string name_;
  std::vector<GraphValue> values_;
  std::vector<GraphNode> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  std::unordered_set<std::string> value_names_, node_names_;
  std::unordered_map<std::string, ValueId> chosen_names_;  // names of value_names_ that nobody gave
  // Unknown sizes are tried with different numbers each: what comes out alike is known.
  std::vector<std::unique_ptr<ShapeInference>> trials_;
  std::unique_ptr<NamedTrials> named_trials_;
  std::deque<HostTensor> constants_;          // those of all trials, which point at them
  std::shared_ptr<const NodeOrigin> origin_;  // the origin of the nodes that are being added
  bool exact_ = true;                         // there are no unknown sizes, so one trial is enough and its errors are real
  bool finished_ = false, relaxed_precision_ = false;
};

// A constant whose elements stand for other numbers, where the parameters say so.
ValueId quantized_constant(Graph& graph, HostTensor tensor, const Quantization& quantization);

// Whether the rank of a node's result depends on sizes that are not known: those of its input where it is a Squeeze of all axes of one
// element, or the length of a list that names its sizes or axes. No trial has all the ranks that are possible then.
bool has_open_rank(const Graph& graph, const GraphNode& node);

}  // namespace pumice
