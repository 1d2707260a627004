// Typed scalar expression trees, parsed from the operator table. GLSL generation, host evaluation and fusion use the same trees.
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

// Types in which expressions are computed: f64 for float64, f32 for all other floats (f64 on the host), and exact integer types.
enum class ExprType : uint8_t { boolean, i32, u32, i64, u64, f32, f64 };
ExprType to_expr_type(DType dtype);
std::string_view get_glsl_type_name(ExprType type);  // "float"

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
  // Stands for an omitted optional operand. min, max and + with it return their other operand. Anywhere else, to_glsl() and evaluate()
  // throw Error.
  static Expression absent();

  const std::vector<std::string>& names() const { return names_; }  // free names, in order of first use
  // Replaces names by expressions: attributes by literals, or, in a fusion, inputs by their producer's expression. Shared subtrees stay
  // shared.
  Expression substitute(const std::map<std::string, Expression>& replacements) const;

  // Returns GLSL for the given parameter types, and the type of the result in `type`. Throws Error on a type mismatch. The GLSL calls
  // functions of include/math.glsl and repeats shared subtrees.
  std::string to_glsl(const std::map<std::string, ExprType>& types, ExprType* type = nullptr) const;

  // Estimates how expensive the GLSL is to compile: roughly the number of instructions after inlining. A shared subtree counts each time it
  // occurs. `has_doubles`: the GLSL uses fp64 functions.
  uint64_t estimate_compile_cost(bool has_doubles = false) const;

  // Evaluates one element on the host. Integers are exact; bool is 0 or 1. `rounds_to_fp32`: round the result of each operation to fp32.
  // Throws Error for an unbound name and for an integer division by zero. The integer overload also throws for functions of real numbers.
  double evaluate(const std::map<std::string, double>& values, bool rounds_to_fp32 = false) const;
  int64_t evaluate(const std::map<std::string, int64_t>& values) const;

 private:
  explicit Expression(std::shared_ptr<const ExprNode> root);
  std::shared_ptr<const ExprNode> root_;
  std::vector<std::string> names_;
};

}  // namespace pumice
