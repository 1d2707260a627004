#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

uint64_t word(int64_t value) {
  return static_cast<uint64_t>(value);
}

int64_t divide(int64_t a, int64_t b) {
  if (b == 0) throw Error("a division of integers by zero");
  return b == -1 ? static_cast<int64_t>(0 - word(a)) : a / b;
}

int64_t integer_binary(std::string_view symbol, int64_t a, int64_t b) {
  if (symbol == "+") return static_cast<int64_t>(word(a) + word(b));
  if (symbol == "-") return static_cast<int64_t>(word(a) - word(b));
  if (symbol == "*") return static_cast<int64_t>(word(a) * word(b));
  if (symbol == "/") return divide(a, b);
  if (symbol == "%") return b == 0 ? divide(a, b) : b == -1 ? 0 : a % b;
  if (symbol == "&") return a & b;
  if (symbol == "|") return a | b;
  if (symbol == "^") return a ^ b;
  if (symbol == "<<") return b < 0 || b > 63 ? 0 : static_cast<int64_t>(word(a) << b);
  return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b;
}

double real_binary(std::string_view symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "/") return a / b;
  if (symbol == "%") return std::fmod(a, b);
  throw Error("'" + std::string(symbol) + "' takes integers, given real numbers");
}

// Evaluates a tree for one element.
template <typename T>
class Evaluator {
 public:
  explicit Evaluator(const std::map<std::string, T>& values, bool single = false) : values_(values), single_(single) {}

  T value(const ExprNode& node) const {
    switch (node.kind) {
      case ExprKind::literal:
        return literal(node);
      case ExprKind::bool_literal:
        return static_cast<T>(node.value);
      case ExprKind::name:
        return named(node.text);
      case ExprKind::unary:
        return unary(node);
      case ExprKind::binary:
        return binary(node);
      case ExprKind::conditional:
        return value(*node.children[value(*node.children[0]) != 0 ? 1 : 2]);
      case ExprKind::call:
        return call(node);
      default:
        throw Error("no number: " + format_expression(node));
    }
  }

 private:
  static constexpr bool kInteger = std::is_integral_v<T>;

  T literal(const ExprNode& node) const {
    if (kInteger && node.real) throw Error(format_expression(node) + " in an expression of integers");
    return rounded(static_cast<T>(node.value));
  }

  T rounded(T value) const { return single_ ? static_cast<T>(static_cast<float>(value)) : value; }

  T named(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error("no value for '" + name + "'");
    return found->second;
  }

  T unary(const ExprNode& node) const {
    const T operand = value(*node.children[0]);
    if (node.text == "!") return operand == 0;
    if constexpr (kInteger) return node.text == "~" ? ~operand : static_cast<int64_t>(0 - word(operand));
    if (node.text == "~") throw Error("'~' takes integers, given a real number");
    return -operand;
  }

  T binary(const ExprNode& node) const {
    const T left = value(*node.children[0]);
    if (node.text == "&&" || node.text == "||") return (left != 0) == (node.text == "&&") ? value(*node.children[1]) != 0 : left != 0;
    const T right = value(*node.children[1]);
    if (const auto bool_literal = compare(node.text, left, right)) return *bool_literal;
    if constexpr (kInteger)
      return integer_binary(node.text, left, right);
    else
      return rounded(real_binary(node.text, left, right));
  }

  T call(const ExprNode& node) const {
    const ExprFunction* function = find_expr_function(node.text);
    const T first = value(*node.children[0]), second = node.children.size() > 1 ? value(*node.children[1]) : T{};
    if constexpr (!kInteger) {
      const bool is_other_type = function->signature == Signature::cast && node.text != "f32";
      return is_other_type ? function->evaluate(first, second) : rounded(function->evaluate(first, second));
    }
    if (!function->integer) throw Error("'" + node.text + "' takes real numbers, given an integer");
    return static_cast<T>(function->integer(static_cast<int64_t>(first), static_cast<int64_t>(second)));
  }

  const std::map<std::string, T>& values_;
  bool single_;
};

}  // namespace

double Expression::evaluate(const std::map<std::string, double>& values, bool single) const {
  return Evaluator<double>(values, single).value(*root_);
}

int64_t Expression::evaluate(const std::map<std::string, int64_t>& values) const {
  return Evaluator<int64_t>(values).value(*root_);
}

}  // namespace pumice
