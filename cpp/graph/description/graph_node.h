// Values and nodes of a graph, and the nested graphs of control nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "graph/description/node_check.h"
#include "operators/table/operator_table.h"

namespace pumice {

class CompoundOperation;

using ValueId = int32_t;
inline constexpr ValueId kAbsent = -1;
// Returns the index of a value in vectors with one entry per value.
inline size_t to_index(ValueId value) {
  return static_cast<size_t>(value);
}

struct GraphValue {
  std::string name;
  DType dtype = DType::float32;
  std::optional<Shape> shape;                // kUnknownSize for unknown sizes; nullopt: unknown rank
  std::vector<std::string> dimension_names;  // symbolic names of input dimensions ("N"); may be empty
  std::optional<HostTensor> constant;
  int32_t producer = -1;           // index of the node that computes it; -1 for inputs and constants
  bool owned = false;              // whether it is an input that is bound once, at initialisation
  bool assumed = false;            // whether it is an input of a nested graph whose sizes come from trials and need not hold
  bool fp32 = false;               // whether it is a constant that stays float32 in a float16 program
  Quantization quantization = {};  // not quantized if it has no scale

  bool is_known() const;  // whether all sizes are known
};
std::string format_shape(const std::optional<Shape>& shape);  // e.g. "[?, 3]"; "[...]" if the rank is unknown
std::string to_string(const GraphValue& value);               // e.g. "float32[?, 3]"; "float32[...]" if the rank is unknown

class Graph;

// The graphs that an IF or WHILE node runs. They are finished, and several nodes may share them.
struct ControlFlow {
  enum class NodeKind : uint8_t { if_, while_ };

  NodeKind kind = NodeKind::if_;
  std::shared_ptr<const Graph> first, second;    // the then and else graphs, or condition and body
  size_t carried = 0, state = 0, invariant = 0;  // number of WHILE inputs of each kind, in this order

  std::string_view op() const { return kind == NodeKind::if_ ? "If" : "While"; }
};

// Returns the quantization parameters of a tensor with a zero point filled in; empty ones stay empty. Throws GraphError if they do not fit
// the dtype or shape.
Quantization validate_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization parameters);

// The caller's node and operation that was expanded into a node, for error messages.
struct NodeOrigin {
  std::string node;
  std::string_view op;
};

struct GraphNode {
  std::string name;
  const OperatorRow* row = nullptr;  // null for IF and WHILE
  Attributes attributes;
  std::vector<ValueId> inputs, outputs;                    // kAbsent if omitted; input 0 of an IF is its condition
  std::shared_ptr<const ControlFlow> control = nullptr;    // set for IF and WHILE
  std::shared_ptr<const NodeOrigin> origin = nullptr;      // null if the caller added the node
  std::shared_ptr<const NodeCheck> requirement = nullptr;  // set if the node checks its first input and returns it
  bool may_fail = false;                        // only its output shape is used: if the node cannot run on its inputs, its output is empty
  const CompoundOperation* compound = nullptr;  // set for a deferred node, which represents a whole operation until shapes are known

  std::string_view op() const { return control ? control->op() : row->name; }
  // Returns the inputs that output 0 is computed from; for a check node, only the first input.
  std::span<const ValueId> get_data_inputs() const { return std::span(inputs).first(requirement ? 1 : inputs.size()); }
};

// Whether the node is expanded only once its input shapes are known.
inline bool is_deferred(const GraphNode& node) {
  return node.compound != nullptr;
}

}  // namespace pumice
