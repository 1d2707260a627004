// Elements of a graph: values, nodes, and the graphs that nodes run.
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
// Index of a value in vectors with one entry per value.
inline size_t index(ValueId value) {
  return static_cast<size_t>(value);
}

struct GraphValue {
  std::string name;
  DType dtype = DType::float32;
  std::optional<Shape> shape;                // kUnknownSize for unknown sizes; none: unknown rank
  std::vector<std::string> dimension_names;  // symbolic names of input dimensions ("N"), may be empty
  std::optional<HostTensor> constant;
  int32_t producer = -1;           // node index; -1 for inputs and constants
  bool owned = false;              // an input that is bound at initialisation only
  bool assumed = false;            // an input of a graph that a node runs: its sizes come from trials and need not hold
  bool fp32 = false;               // a constant that stays float32 in a float16 program
  Quantization quantization = {};  // no scale: not quantised

  bool is_known() const;  // all sizes
};
std::string shape_text(const std::optional<Shape>& shape);  // "[?, 3]", "[...]" for an unknown rank
std::string to_string(const GraphValue& value);             // "float32[?, 3]"; "float32[...]" for an unknown rank

class Graph;

// The graphs that an IF or WHILE node runs. They are finished and may be shared by several nodes.
struct ControlFlow {
  enum class Kind : uint8_t { if_, while_ };

  Kind kind = Kind::if_;
  std::shared_ptr<const Graph> first, second;    // the then and else graphs, or condition and body
  size_t carried = 0, state = 0, invariant = 0;  // how many WHILE inputs of each kind there are; the inputs come in this order

  std::string_view op() const { return kind == Kind::if_ ? "If" : "While"; }
};

// Completes the quantization parameters of a tensor with a zero point; empty ones stay empty. Throws GraphError if they do not fit the
// dtype or shape.
Quantization checked_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization parameters);

// The caller's node and operation that was expanded, for error messages.
struct NodeOrigin {
  std::string node;
  std::string_view op;
};

struct GraphNode {
  std::string name;
  const OperatorRow* row = nullptr;  // null for IF and WHILE
  Attributes attributes;
  std::vector<ValueId> inputs, outputs;                    // kAbsent for omitted optional ones; input 0 of an IF is its condition
  std::shared_ptr<const ControlFlow> control = nullptr;    // set for IF and WHILE
  std::shared_ptr<const NodeOrigin> origin = nullptr;      // null if the caller added the node
  std::shared_ptr<const NodeCheck> requirement = nullptr;  // set for a node that checks its first input and returns it
  bool may_fail = false;  // needed only for its shape: if the node cannot run on its inputs, its output is empty
  const CompoundOperation* compound =
      nullptr;  // set for a node that represents a whole operation until shapes are known; see is_deferred()

  std::string_view op() const { return control ? control->op() : row->name; }
  // The inputs from which output 0 is computed: a check node only returns its first input.
  std::span<const ValueId> read() const { return std::span(inputs).first(requirement ? 1 : inputs.size()); }
};

// Whether the node is expanded once its input shapes are known.
inline bool is_deferred(const GraphNode& node) {
  return node.compound != nullptr;
}

}  // namespace pumice
