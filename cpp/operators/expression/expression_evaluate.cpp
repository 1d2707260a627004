#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

uint64_t to_unsigned(int64_t value) {
  return static_cast<uint64_t>(value);
}

int64_t divide_integers(int64_t a, int64_t b) {
  if (b == 0) throw Error("a division of integers by zero");
  return b == -1 ? static_cast<int64_t>(0 - to_unsigned(a)) : a / b;
}

int64_t evaluate_integer_binary(std::string_view symbol, int64_t a, int64_t b) {
  if (symbol == "+") return static_cast<int64_t>(to_unsigned(a) + to_unsigned(b));
  if (symbol == "-") return static_cast<int64_t>(to_unsigned(a) - to_unsigned(b));
  if (symbol == "*") return static_cast<int64_t>(to_unsigned(a) * to_unsigned(b));
  if (symbol == "/") return divide_integers(a, b);
  if (symbol == "%") return b == 0 ? divide_integers(a, b) : b == -1 ? 0 : a % b;
  if (symbol == "&") return a & b;
  if (symbol == "|") return a | b;
  if (symbol == "^") return a ^ b;
  if (symbol == "<<") return b < 0 || b > 63 ? 0 : static_cast<int64_t>(to_unsigned(a) << b);
  return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b;
}

double evaluate_real_binary(std::string_view symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "/") return a / b;
  if (symbol == "%") return std::fmod(a, b);
  throw Error("'" + std::string(symbol) + "' takes integers, given real numbers");
}

// Evaluates an expression tree for one element.
template <typename T>
class ExpressionEvaluator {
 public:
  explicit ExpressionEvaluator(const std::map<std::string, T>& values, bool rounds_to_fp32 = false)
      : values_(values), rounds_to_fp32_(rounds_to_fp32) {}

  T evaluate(const ExprNode& node) const {
    switch (node.kind) {
      case ExprKind::literal:
        return evaluate_literal(node);
      case ExprKind::bool_literal:
        return static_cast<T>(node.value);
      case ExprKind::name:
        return look_up_name(node.text);
      case ExprKind::unary:
        return evaluate_unary(node);
      case ExprKind::binary:
        return evaluate_binary(node);
      case ExprKind::conditional:
        return evaluate(*node.children[evaluate(*node.children[0]) != 0 ? 1 : 2]);
      case ExprKind::call:
        return evaluate_call(node);
      default:
        throw Error("not a number: " + format_expression(node));
    }
  }

 private:
  static constexpr bool kInteger = std::is_integral_v<T>;

  T evaluate_literal(const ExprNode& node) const {
    if (kInteger && node.real) throw Error(format_expression(node) + " is not allowed in an integer expression");
    return round_result(static_cast<T>(node.value));
  }

  T round_result(T value) const { return rounds_to_fp32_ ? static_cast<T>(static_cast<float>(value)) : value; }

  T look_up_name(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error("no value for '" + name + "'");
    return found->second;
  }

  T evaluate_unary(const ExprNode& node) const {
    const T operand = evaluate(*node.children[0]);
    if (node.text == "!") return operand == 0;
    if constexpr (kInteger) return node.text == "~" ? ~operand : static_cast<int64_t>(0 - to_unsigned(operand));
    if (node.text == "~") throw Error("'~' takes integers, given a real number");
    return -operand;
  }

  T evaluate_binary(const ExprNode& node) const {
    const T left = evaluate(*node.children[0]);
    if (node.text == "&&" || node.text == "||") return (left != 0) == (node.text == "&&") ? evaluate(*node.children[1]) != 0 : left != 0;
    const T right = evaluate(*node.children[1]);
    if (const auto bool_literal = evaluate_comparison(node.text, left, right)) return *bool_literal;
    if constexpr (kInteger)
      return evaluate_integer_binary(node.text, left, right);
    else
      return round_result(evaluate_real_binary(node.text, left, right));
  }

  T evaluate_call(const ExprNode& node) const {
    const ExprFunction* function = find_expr_function(node.text);
    const T first = evaluate(*node.children[0]), second = node.children.size() > 1 ? evaluate(*node.children[1]) : T{};
    if constexpr (!kInteger) {
      const bool is_other_type = function->signature == Signature::cast && node.text != "f32";
      return is_other_type ? function->evaluate(first, second) : round_result(function->evaluate(first, second));
    }
    if (!function->integer) throw Error("'" + node.text + "' takes real numbers, given an integer");
    return static_cast<T>(function->integer(static_cast<int64_t>(first), static_cast<int64_t>(second)));
  }

  const std::map<std::string, T>& values_;
  bool rounds_to_fp32_;
};

}  // namespace

double Expression::evaluate(const std::map<std::string, double>& values, bool rounds_to_fp32) const {
  return ExpressionEvaluator<double>(values, rounds_to_fp32).evaluate(*root_);
}

int64_t Expression::evaluate(const std::map<std::string, int64_t>& values) const {
  return ExpressionEvaluator<int64_t>(values).evaluate(*root_);
}

}  // namespace pumice
