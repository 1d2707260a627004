// Typed scalar expression trees, parsed from an operator row's text. One tree gives the GLSL, the host evaluation and the fusion.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace pumice {

// Scalar types that an expression computes in: floats compute in f32 (f64 on the host), integers exactly.
enum class ExprType : uint8_t { boolean, i32, u32, i64, u64, f32 };
ExprType expr_type(DType dtype);

// An immutable expression over named parameters. Grammar: C's ?: || && | ^ & == != < <= > >= << >> + - * / % unary - ! ~, calls
// (abs, sqrt, exp, log, tanh, erf, floor, ceil, round_even, sign, min, max, pow, isnan, isinf, ...), literals, names.
// min, max, clamp and relu-like forms keep NaN as NumPy does: they are emitted as comparisons with selects.
class Expression {
 public:
  // Throws Error with the position for text that does not parse.
  static Expression parse(std::string_view text);

  const std::vector<std::string>& names() const;  // free names, in order of first use
  // Names replaced by expressions: attributes by literals, a producer by its own tree (fusion).
  Expression substitute(const std::map<std::string, Expression>& replacements) const;
  static Expression literal(double value);
  static Expression name(std::string_view name);

  // GLSL text for the given parameter types; `type` receives the result's type. Throws Error where the types do not fit.
  std::string glsl(const std::map<std::string, ExprType>& types, ExprType* type = nullptr) const;
  // Names of GLSL functions of include/math.glsl that the text calls ("pm_erf"): nothing to do for the caller, the include has them all.

  // Host evaluation, one element. Integers are exact; bool is 0 or 1.
  double evaluate(const std::map<std::string, double>& values) const;
  int64_t evaluate(const std::map<std::string, int64_t>& values) const;

 private:
  struct Node;
  explicit Expression(std::shared_ptr<const Node> root);
  std::shared_ptr<const Node> root_;
};

}  // namespace pumice
