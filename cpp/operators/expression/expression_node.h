// The nodes of expression trees: for the parser, the emitter and the evaluation alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// literal: a number (`real`: has a fraction or was written with one, so a float); truth: true or false; unary, binary: `text` is
// the operator; call: `text` is the function.
enum class ExprKind : uint8_t { literal, truth, text, name, absent, unary, binary, conditional, call };

using ExprPtr = std::shared_ptr<const struct ExprNode>;

// One operation with its operands. Trees share nodes, and nodes never change.
struct ExprNode {
  ExprKind kind;
  std::string text;
  double value = 0;
  bool real = false;
  std::vector<ExprPtr> children;
};

// The relation between the types of a function's operands and result.
enum class Signature : uint8_t { real, real_test, same, cast };

// The cost of compiling a function: instructions of its SPIR-V with those that it calls, each conditional branch counted as eight more.
struct FunctionWeight {
  uint64_t of_float, of_double;
};

// A function of the grammar, with its GLSL name and its value on the host; `integer` is null where there is none.
struct ExprFunction {
  std::string_view name;
  Signature signature;
  size_t arity;
  std::string_view glsl;
  FunctionWeight weight;
  double (*evaluate)(double, double);
  int64_t (*integer)(int64_t, int64_t) = nullptr;
  bool has_double = false;  // its GLSL takes doubles too; for functions of real numbers
};

// The function of that name; null for an unknown one.
const ExprFunction* find_expr_function(std::string_view name);

// A node of these parts, or the simpler one that it stands for: conditions on literals are decided, absent operands drop out.
ExprPtr make_node(ExprNode node);
ExprPtr make_number(double value);
ExprPtr parse_expression(std::string_view text);
// The text of a tree, for messages; long ones are cut.
std::string describe(const ExprNode& node);

// The comparison of a symbol; none where the symbol is no comparison.
template <typename T>
std::optional<bool> compare(std::string_view symbol, const T& a, const T& b) {
  if (symbol == "==") return a == b;
  if (symbol == "!=") return a != b;
  if (symbol == "<") return a < b;
  if (symbol == "<=") return a <= b;
  if (symbol == ">") return a > b;
  if (symbol == ">=") return a >= b;
  return {};
}

}  // namespace pumice
