// Typed scalar expression trees, parsed from the operator table. The same tree is used for GLSL, host evaluation and fusion.
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

// Computation types: f64 for float64, f32 for other floats (f64 on the host), exact types for integers.
enum class ExprType : uint8_t { boolean, i32, u32, i64, u64, f32, f64 };
ExprType to_expr_type(DType dtype);
std::string_view glsl_type_name(ExprType type);  // "float"

struct ExprNode;

// An immutable expression over named parameters. Grammar: C's ?: || && | ^ & == != < <= > >= << >> + - * / % unary - ! ~, calls (abs, sqrt,
// exp, log, tanh, erf, floor, ceil, round_even, sign, min, max, pow, floor_divide, isnan, isinf, ...; casts i32() .. f64(), bool()),
// literals, true, false, inf, nan, names, and 'text' compared with == and !=. An integer literal is converted to the type of the other
// operand, and so is any literal if a parameter is a double; all other types must match. min, max and forms like x < 0 ? 0 : x propagate
// NaN like NumPy: they are emitted as comparisons with selects. Conditions on literals are folded at construction.
class Expression {
 public:
  // Throws Error with the position of a syntax error.
  static Expression parse(std::string_view text);
  static Expression literal(double value);
  static Expression name(std::string_view name);
  static Expression text(std::string_view text);
  // An omitted operand: min, max and + return their other operand; in any other position, to_glsl() and evaluate() throw Error.
  static Expression absent();

  const std::vector<std::string>& names() const { return names_; }  // free names, in order of first use
  // Replaces names with expressions: attributes with literals, or with the producer's expression in a fusion. Shared subtrees stay shared.
  Expression substitute(const std::map<std::string, Expression>& replacements) const;

  // Returns GLSL for the given parameter types; `type` receives the result type. Throws Error on a type mismatch. Calls functions of
  // include/math.glsl. Shared subtrees are repeated.
  std::string to_glsl(const std::map<std::string, ExprType>& types, ExprType* type = nullptr) const;

  // Returns the estimated compile cost of the GLSL, roughly the number of instructions after inlining. A shared subtree counts each time it
  // occurs. `has_doubles`: use fp64 functions.
  uint64_t estimate_compile_cost(bool has_doubles = false) const;

  // Evaluates one element on the host. Integers are exact; bool is 0 or 1. `rounds_to_fp32`: round the result of each operation to fp32.
  // Throws Error for an unbound name and for integer division by zero; the integer overload also for real functions.
  double evaluate(const std::map<std::string, double>& values, bool rounds_to_fp32 = false) const;
  int64_t evaluate(const std::map<std::string, int64_t>& values) const;

 private:
  explicit Expression(std::shared_ptr<const ExprNode> root);
  std::shared_ptr<const ExprNode> root_;
  std::vector<std::string> names_;
};

}  // namespace pumice
