// Nodes of expression trees. Used only inside operators/expression.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// literal: a number (`real`: a float literal); bool_literal: true or false; unary, binary: `text` is the operator; call: `text` is the
// function's name.
enum class ExprKind : uint8_t { literal, bool_literal, text, name, absent, unary, binary, conditional, call };

using ExprPtr = std::shared_ptr<const struct ExprNode>;

// An operation and its operands. Nodes are immutable and shared between trees.
struct ExprNode {
  ExprKind kind;
  std::string text;
  double value = 0;
  bool real = false;
  std::vector<ExprPtr> children;
};

// Types of a function's operands and result. real: float to float. real_test: float to bool. same: all have the same type. cast: any type
// to the type that the function is named after.
enum class Signature : uint8_t { real, real_test, same, cast };

// Compile cost of a function: its SPIR-V instructions, including those of its callees, plus eight per conditional branch.
struct FunctionCost {
  uint64_t fp32_cost, fp64_cost;
};

// A function of the expression grammar, its GLSL name and its host implementations. `integer` is null if it has no integer form.
struct ExprFunction {
  std::string_view name;
  Signature signature;
  size_t arity;
  std::string_view glsl;
  FunctionCost cost;
  double (*evaluate)(double, double);
  int64_t (*integer)(int64_t, int64_t) = nullptr;
  bool has_double = false;  // the GLSL function has an overload for double
};

// Returns the function with that name; null if unknown.
const ExprFunction* find_expr_function(std::string_view name);

// Creates a node and simplifies it: folds conditions on literals and drops absent operands.
ExprPtr make_node(ExprNode node);
ExprPtr make_literal(double value);
ExprPtr parse_expression(std::string_view text);
// Formats an expression for an error message. Truncates long expressions.
std::string format_expression(const ExprNode& node);

// Evaluates a comparison operator; nullopt if the symbol is not one.
template <typename T>
std::optional<bool> evaluate_comparison(std::string_view symbol, const T& a, const T& b) {
  if (symbol == "==") return a == b;
  if (symbol == "!=") return a != b;
  if (symbol == "<") return a < b;
  if (symbol == "<=") return a <= b;
  if (symbol == ">") return a > b;
  if (symbol == ">=") return a >= b;
  return {};
}

}  // namespace pumice
