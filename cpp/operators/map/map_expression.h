// The scalar expression of one node of a map row: for its kernel, its fusion and its value on the host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "operators/row/operator_table.h"

namespace pumice {

// The names that the expression gives to the node's inputs, by position; those of a variadic role are numbered ("a0", "a1").
std::vector<std::string> map_input_names(const OperatorRow& row, size_t inputs);

// The row's expression with the node's attributes as literals, over map_input_names(). Optional inputs that are not `present` drop
// out; a row with a variadic role states its expression for two, "a" and "b", and is folded from the left.
Expression map_expression(const OperatorRow& row, const Attributes& attributes, const std::vector<bool>& present);

// The fold of a variadic row's operands by their names, `count` inputs in all; 0: more of them are to come.
Expression folded_expression(std::string_view text, const std::vector<std::string>& names, size_t count);

// The row of a map that has an expression of its own, over "in0", "in1", .. of so many operands. Its attribute kMapDtype is the element
// type of the result.
inline constexpr size_t kMostMapOperands = 4;
inline constexpr std::string_view kMapDtype = "dtype";
// Set where the functions of the expression are to be those of float32, also where the result has 16 bits.
inline constexpr std::string_view kMapExact = "exact_functions";
inline bool has_exact_functions(const Attributes& attributes) {
  return attributes.integer(kMapExact, 0) != 0;
}
const OperatorRow& map_row(size_t operands);

}  // namespace pumice
