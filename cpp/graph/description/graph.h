// Values, nodes and constants; validated node by node, compiled into a Program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/description/fusions.h"
#include "operators/row/operator_table.h"

namespace pumice {

inline constexpr int64_t kUnknownSize = -1;

using ValueId = int32_t;
inline constexpr ValueId kAbsent = -1;

struct GraphValue {
  std::string name;
  DType dtype = DType::float32;
  std::optional<Shape> shape;                // kUnknownSize for unknown sizes; none: unknown rank
  std::vector<std::string> dimension_names;  // symbolic names of input dimensions ("N"), empty where none
  std::optional<HostTensor> constant;
  int32_t producer = -1;           // node index; -1 for inputs and constants
  bool owned = false;              // an input that is bound at initialisation only
  bool assumed = false;            // an input of a graph that a node runs: its sizes are what came out alike for some, and need not hold
  bool wide = false;               // of a program of float16: a constant that stays float32
  Quantization quantization = {};  // without a scale: the elements stand for themselves

  bool is_known() const;  // every size
};
std::string to_string(const GraphValue& value);  // "float32[?, 3]"; "float32[...]" where the rank is unknown

class Graph;

// What an IF or WHILE node runs: finished graphs, which other nodes may run too.
struct ControlFlow {
  enum class Kind : uint8_t { if_, while_ };

  Kind kind = Kind::if_;
  std::shared_ptr<const Graph> first, second;    // then and else, or condition and body
  size_t carried = 0, state = 0, invariant = 0;  // of the inputs of a WHILE, in this order

  std::string_view op() const { return kind == Kind::if_ ? "If" : "While"; }
};

// Parameters that fit a tensor of this dtype and shape, a zero point among them; as they are where there is no scale. Throws GraphError.
Quantization checked_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization given);

namespace nnapi {
struct Operation;
struct Requirement;
}  // namespace nnapi

// The node of the caller that became several, and its operation: errors name these.
struct NodeOrigin {
  std::string node;
  std::string_view op;
};

struct GraphNode {
  std::string name;
  const OperatorRow* row = nullptr;  // null for IF and WHILE
  Attributes attributes;
  std::vector<ValueId> inputs, outputs;                             // kAbsent for optional ones left out; input 0 of an IF is its condition
  std::shared_ptr<const ControlFlow> control = nullptr;             // of IF and WHILE
  std::shared_ptr<const NodeOrigin> origin = nullptr;               // none: the caller's own
  std::shared_ptr<const nnapi::Requirement> requirement = nullptr;  // of a node that passes on its first input once it has been checked
  bool tentative = false;  // it is there to tell a shape: where it cannot run on what it is given, it makes nothing

  std::string_view op() const { return control ? control->op() : row->name; }
  // The inputs of which output 0 holds elements: a check passes on the first alone.
  std::span<const ValueId> read() const { return std::span(inputs).first(requirement ? 1 : inputs.size()); }
};
class CompiledOperator;
class Program;
class ShapeInference;
struct ExecutionOptions;
class UploadMemory;

// How far a compilation is: what is being done, and how much of it.
using CompileProgress = std::function<void(const char* phase, uint64_t done, uint64_t total)>;

struct ProgramOptions {
  std::string precision = "fp32";  // "fp32", "fp16" or "bf16"
  bool keep_all = false;           // every node's outputs become outputs of the program (validation)
  FusionSet fuse = FusionSet::all();
  bool check_indices = false;                      // executions throw IndexRangeError for indices out of range that only the device knows
  CompileProgress progress = {};                   // may be empty; may throw
  std::shared_ptr<UploadMemory> memory = nullptr;  // begun already, of the same context; none: compile begins it
  bool deterministic = false;                      // results are the same bits in every run
};

// Grows node by node in an order in which it can run; every node is checked as it is added. Not thread-safe until finished.
class Graph {
 public:
  explicit Graph(std::string name = {});
  ~Graph();
  Graph(const Graph&) = delete;

  // Throw GraphError for a name that another value was given, and for parameters of a quantized tensor that do not fit: a scale of its own
  // kind, a zero point that its integers have. Those of a constant are its desc's. owned: a compiled operator's initializer reads it, and
  // executions do not (O2). assumed: of a graph that a node of another one runs, whose sizes are those that came out alike for some sizes
  // of the other's inputs; it may be run on others.
  ValueId input(std::string name, DType dtype, std::optional<Shape> shape, std::vector<std::string> dimension_names = {},
                bool owned = false, Quantization quantization = {}, bool assumed = false);
  ValueId constant(HostTensor value, std::string name = {});
  // Throws UnsupportedError (no such operator, or dtype) and GraphError (wrong inputs, attributes, shapes where known). The graph
  // is as it was after a refusal. An operation of NNAPI ("nnapi::ADD") has that system's operands in its own order; scale, zero_point and
  // dtype of its output operand are attributes. It becomes several nodes, the first that makes an output having the name. It gives the
  // outputs that it has; `outputs` is 1 or their number.
  std::vector<ValueId> add(std::string_view op, std::vector<ValueId> inputs, const Attributes& attributes = {}, size_t outputs = 1,
                           std::string name = {}, std::vector<std::string> output_names = {});
  // Runs `then` where the condition (bool[1]) is true, else `orelse`, on the inputs. Both are finished by it, if they are not yet. Throws
  // GraphError with the rule's id (graph_rules()), StateError. No condition (kAbsent) is refused when the node runs (B2.13).
  std::vector<ValueId> if_(ValueId condition, const std::shared_ptr<Graph>& then, const std::shared_ptr<Graph>& orelse,
                           std::vector<ValueId> inputs, std::string name = {}, std::vector<std::string> output_names = {});
  // while condition(carried, state, invariant): carried, state = body(carried, state, invariant). The results are the carried values.
  std::vector<ValueId> while_(const std::shared_ptr<Graph>& condition, const std::shared_ptr<Graph>& body, std::vector<ValueId> carried,
                              const std::vector<ValueId>& state = {}, const std::vector<ValueId>& invariant = {}, std::string name = {},
                              std::vector<std::string> output_names = {});
  // A copy of what makes a value of another graph, without IF and WHILE, on these values in the place of that graph's inputs. Its nodes are
  // named after `stem`, and nothing but their shapes is to be read. Throws GraphError where they cannot take the values; the graph is then
  // as it was.
  ValueId graft(const Graph& other, ValueId value, const std::vector<ValueId>& inputs, const std::string& stem);
  // Sizes that a value is likely to have, where they are not known (kUnknownSize: no more is known of them either): what follows is checked
  // by them as far as unknown sizes are.
  void expect(ValueId value, const Shape& shape);
  void output(std::string name, ValueId value);
  // What nnapi::Expansion adds. A node that passes on its first input, checked when the program is bound:
  ValueId require(std::shared_ptr<const nnapi::Requirement> requirement, std::vector<ValueId> inputs, std::string name);
  // What is known of a value besides what its node tells; sizes that are known stay.
  void refine(ValueId value, const Shape& shape);
  // Adds a node of another graph, with other inputs, as it is there; outputs have the values' names.
  std::vector<ValueId> repeat(const GraphNode& node, std::vector<ValueId> inputs, std::vector<std::string> output_names);
  void finish();  // idempotent; later changes throw StateError. Throws GraphError where there is no output.
  bool finished() const { return finished_; }
  std::shared_ptr<Program> compile(std::shared_ptr<Context> context, const ProgramOptions& options = {});
  // The whole graph as one operator for tables, initializers and command lists: a slot for every input (C8), used or not (G6). Constants
  // are read now (G5) and go to the persistent resource with the owned inputs. Throws GraphError where a size is unknown, UnsupportedError
  // with all that is not supported, nodes that need the host among it.
  std::shared_ptr<CompiledOperator> compile_operator(std::shared_ptr<Context> context, const ExecutionOptions& options);

  // All sizes are known, and none depends on what only a device knows.
  bool exact() const { return exact_; }
  const std::string& name() const { return name_; }
  const std::vector<GraphValue>& values() const { return values_; }
  const GraphValue& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  // Those of a constant, and of what follows from constants and sizes where all are known; null where they are not, or not yet.
  const HostTensor* elements(ValueId id) const;
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::vector<ValueId> add_expanded(const nnapi::Operation& operation, const std::string& name, std::vector<ValueId> inputs,
                                    const Attributes& attributes, size_t outputs, const std::vector<std::string>& output_names);
  std::vector<ValueId> add_late(const nnapi::Operation& operation, const std::string& name, std::vector<ValueId> inputs,
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
  std::unordered_map<std::string, ValueId> chosen_names_;  // those of value_names_ that nobody gave
  // Unknown sizes are tried with different numbers each: what comes out alike is known.
  std::vector<std::unique_ptr<ShapeInference>> trials_;
  std::shared_ptr<const NodeOrigin> origin_;  // of the nodes that are being added
  bool exact_ = true;                         // there are no unknown sizes, so one trial is enough and its errors are real
  bool finished_ = false;
};

}  // namespace pumice
