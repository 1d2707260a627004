// The operations of NNAPI by their own names and with operands in their own order; each becomes a few nodes of the operator table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace pumice::nnapi {

class Expansion;

enum class OperandKind : uint8_t {
  tensor,
  list,    // a vector: axes, sizes
  scalar,  // one number of rank 0, a constant
};
std::string_view name(OperandKind kind);

struct Operand : ValueRole {
  OperandKind kind = OperandKind::tensor;
  bool per_channel = false;  // scales of channels are taken
};

struct Operation {
  std::string_view name;  // "nnapi::ADD"
  int level = 1;          // the feature level that brought it
  std::string_view summary;
  std::vector<Operand> inputs, outputs;
  void (*expand)(Expansion&) = nullptr;
  std::vector<Operand> implicit = {};  // the other form of the inputs, with a scheme in place of four paddings
};

std::span<const Operation> operations();                 // sorted by name
const Operation* find_operation(std::string_view name);  // null for an unknown one

// Adds the nodes and returns the operation's outputs. `declared`: scale, zero_point and dtype of the output operand. Throws GraphError
// that names the operation, the operand and what was expected; UnsupportedError.
struct Output {
  ValueId value;
  Quantization quantization;
};
std::vector<Output> expand(Graph& graph, const Operation& operation, const std::string& node, std::vector<ValueId> operands,
                           const Attributes& declared);

using Operations = std::vector<Operation>;
Operations elementwise_operations();
Operations movement_operations();
Operations reduction_operations();
Operations product_operations();
Operations image_operations();

}  // namespace pumice::nnapi
