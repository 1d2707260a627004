// The parts of a graph: values, nodes, and the graphs that nodes run.
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
#include "operators/row/operator_table.h"

namespace pumice {

class CompoundOperation;

inline constexpr int64_t kUnknownSize = -1;

using ValueId = int32_t;
inline constexpr ValueId kAbsent = -1;
// The place of a value in vectors that have one entry for each value.
inline size_t index(ValueId value) {
  return static_cast<size_t>(value);
}

struct GraphValue {
  std::string name;
  DType dtype = DType::float32;
  std::optional<Shape> shape;                // kUnknownSize for unknown sizes; none: unknown rank
  std::vector<std::string> dimension_names;  // symbolic names of input dimensions ("N"), empty where none
  std::optional<HostTensor> constant;
  int32_t producer = -1;           // node index; -1 for inputs and constants
  bool owned = false;              // an input that is bound at initialisation only
  bool assumed = false;            // an input of a graph that a node runs: its sizes are what came out alike for some, and need not hold
  bool wide = false;               // in a float16 program: a constant that stays float32
  Quantization quantization = {};  // without a scale: the elements stand for themselves

  bool is_known() const;  // every size
};
std::string shape_text(const std::optional<Shape>& shape);  // "[?, 3]", "[...]" for an unknown rank
std::string to_string(const GraphValue& value);             // "float32[?, 3]"; "float32[...]" where the rank is unknown

class Graph;

// The graphs that an IF or WHILE node runs. They are finished; other nodes may run them too.
struct ControlFlow {
  enum class Kind : uint8_t { if_, while_ };

  Kind kind = Kind::if_;
  std::shared_ptr<const Graph> first, second;    // then and else, or condition and body
  size_t carried = 0, state = 0, invariant = 0;  // numbers of inputs of a WHILE, in this order

  std::string_view op() const { return kind == Kind::if_ ? "If" : "While"; }
};

// Completes the parameters of a tensor of this dtype and shape, with a zero point; empty ones stay empty. Throws GraphError.
Quantization checked_quantization(const std::string& user, DType dtype, const std::optional<Shape>& shape, Quantization given);

// The node of the caller that became several, and its operation: errors name these.
struct NodeOrigin {
  std::string node;
  std::string_view op;
};

struct GraphNode {
  std::string name;
  const OperatorRow* row = nullptr;  // null for IF and WHILE
  Attributes attributes;
  std::vector<ValueId> inputs, outputs;                    // kAbsent for optional ones left out; input 0 of an IF is its condition
  std::shared_ptr<const ControlFlow> control = nullptr;    // set for IF and WHILE
  std::shared_ptr<const NodeOrigin> origin = nullptr;      // none: the caller's own
  std::shared_ptr<const NodeCheck> requirement = nullptr;  // set for a node that passes on its first input once it has been checked
  bool tentative = false;                       // it is there to tell a shape: where it cannot run on what it is given, it makes nothing
  const CompoundOperation* compound = nullptr;  // set for a node that stands for a whole operation until shapes are known; see is_late()

  std::string_view op() const { return control ? control->op() : row->name; }
  // The inputs of which output 0 holds elements: a check passes on the first alone.
  std::span<const ValueId> read() const { return std::span(inputs).first(requirement ? 1 : inputs.size()); }
};

// The node becomes several once the shapes of its inputs are known.
inline bool is_late(const GraphNode& node) {
  return node.compound != nullptr;
}

}  // namespace pumice
