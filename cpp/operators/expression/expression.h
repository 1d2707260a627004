// Typed scalar expression trees, parsed from an operator row's text. One tree gives the GLSL, the host evaluation and the fusion.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace pumice {

// Scalar types that an expression computes in: float64 in f64, other floats in f32 (f64 on the host), integers exactly.
enum class ExprType : uint8_t { boolean, i32, u32, i64, u64, f32, f64 };
ExprType expr_type(DType dtype);
std::string_view glsl_name(ExprType type);  // "float"

struct ExprNode;

// An immutable expression over named parameters. Grammar: C's ?: || && | ^ & == != < <= > >= << >> + - * / % unary - ! ~, calls
// (abs, sqrt, exp, log, tanh, erf, floor, ceil, round_even, sign, min, max, pow, floor_divide, isnan, isinf, ...; casts i32() .. f64(),
// bool()), literals, true, false, inf, nan, names, and 'text' that is compared with == and !=. An integer literal takes the type of what it
// meets, and beside doubles so does any other; all else must agree. min, max and forms like x < 0 ? 0 : x keep NaN as NumPy does: they are
// emitted as comparisons with selects. A condition on literals alone is decided when the tree is made.
class Expression {
 public:
  // Parses an expression. Throws Error with the position for text that does not parse.
  static Expression parse(std::string_view text);
  static Expression literal(double value);
  static Expression name(std::string_view name);
  static Expression text(std::string_view text);
  // An operand left out: min, max and + give their other operand; anywhere else glsl() and evaluate() throw Error.
  static Expression absent();

  const std::vector<std::string>& names() const { return names_; }  // free names, in order of first use
  // Replaces names by expressions: attributes by literals, a producer by its own tree (fusion). Shared subtrees stay shared.
  Expression substitute(const std::map<std::string, Expression>& replacements) const;

  // GLSL text for the given parameter types; `type` receives the result's type. Throws Error where the types do not fit.
  // Functions of include/math.glsl are called. A subtree used twice is written twice.
  std::string glsl(const std::map<std::string, ExprType>& types, ExprType* type = nullptr) const;

  // The weight tells what the expression's GLSL costs to compile: about the instructions that its functions expand to. A subtree used twice
  // is counted twice. `has_doubles`: the functions are those of doubles.
  uint64_t weight(bool has_doubles = false) const;

  // Evaluates one element on the host. Integers are exact; bool is 0 or 1. Throws Error for a name without a value, for a division of
  // integers by zero and for functions of real numbers in the integer form.
  double evaluate(const std::map<std::string, double>& values, bool single = false) const;
  int64_t evaluate(const std::map<std::string, int64_t>& values) const;

 private:
  explicit Expression(std::shared_ptr<const ExprNode> root);
  std::shared_ptr<const ExprNode> root_;
  std::vector<std::string> names_;
};

}  // namespace pumice
