// Builds the scalar expression of an elementwise node, which its kernel, fusion and host evaluation use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operators/table/operator_table.h"

namespace pumice {

// Returns the names of the node's inputs in the expression, indexed by input. Variadic inputs are numbered ("a0", "a1").
std::vector<std::string> get_elementwise_input_names(const OperatorRow& row, size_t inputs);

// Returns the operator's expression over get_elementwise_input_names(), with attributes as literals. Optional inputs that are not `present`
// are dropped. The expression of a variadic operator combines operands "a" and "b" and is folded from the left.
Expression make_elementwise_expression(const OperatorRow& row, const Attributes& attributes, const std::vector<bool>& present);

// Returns an expression that combines `names` from left to right by the binary expression `text`. `count`: total number of operands, or 0
// if another kernel combines more operands.
Expression make_fold_expression(std::string_view text, const std::vector<std::string>& names, size_t count);

// Operator rows of nodes with a custom expression over "in0", "in1", ... The attribute kOutputDtype is the dtype of the output.
inline constexpr size_t kMaxCustomInputs = 4;
inline constexpr std::string_view kOutputDtype = "dtype";
// Attribute that makes elementary functions accurate to fp32 even if the result has 16 bits.
inline constexpr std::string_view kExactFunctions = "exact_functions";
inline bool has_exact_functions(const Attributes& attributes) {
  return attributes.integer(kExactFunctions, 0) != 0;
}
const OperatorRow& get_custom_elementwise_row(size_t operands);

}  // namespace pumice
