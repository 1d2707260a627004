// The scalar expression of an elementwise node, for its kernel, fusion and host evaluation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

// Names of the node's inputs in the expression, by position; inputs of a variadic role are numbered ("a0", "a1").
std::vector<std::string> elementwise_input_names(const OperatorRow& row, size_t inputs);

// The operator's expression over elementwise_input_names(), with the node's attributes as literals. Optional inputs that are not `present`
// are dropped. A variadic operator has an expression for two operands, "a" and "b", folded from the left.
Expression elementwise_expression(const OperatorRow& row, const Attributes& attributes, const std::vector<bool>& present);

// Left fold of a variadic operator's `count` operands; 0: more operands follow.
Expression fold_expression(std::string_view text, const std::vector<std::string>& names, size_t count);

// Operator for elementwise nodes with a custom expression over "in0", "in1", ... Its attribute kOutputDtype is the output's element type.
inline constexpr size_t kMaxCustomInputs = 4;
inline constexpr std::string_view kOutputDtype = "dtype";
// If set, functions have fp32 accuracy even for 16-bit results.
inline constexpr std::string_view kExactFunctions = "exact_functions";
inline bool has_exact_functions(const Attributes& attributes) {
  return attributes.integer(kExactFunctions, 0) != 0;
}
const OperatorRow& custom_elementwise_row(size_t operands);

}  // namespace pumice
