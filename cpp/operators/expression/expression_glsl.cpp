#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/number_format.h"
#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

constexpr size_t kMaxExpressionChars = 65536;  // maximum number of characters of a GLSL expression

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> choices) {
  for (const std::string_view choice : choices)
    if (text == choice) return true;
  return false;
}

bool is_real(ExprType type) {
  return type == ExprType::f32 || type == ExprType::f64;
}

bool is_integer(ExprType type) {
  return type != ExprType::boolean && !is_real(type);
}

std::string format_double_literal(double value) {
  if (std::isnan(value)) return "double(pm_nan)";
  if (std::isinf(value)) return value > 0 ? "double(pm_infinity)" : "double(-pm_infinity)";
  const std::string text = format_as_float(value, 17) + "LF";
  return std::signbit(value) ? "(" + text + ")" : text;
}

std::string format_float_literal(double value) {
  const auto rounded = static_cast<float>(value);
  if (std::isnan(rounded)) return "pm_nan";
  if (std::isinf(rounded)) return rounded > 0 ? "pm_infinity" : "(-pm_infinity)";
  const std::string text = format_as_float(rounded, 9);
  return std::signbit(rounded) ? "(" + text + ")" : text;
}

template <typename T>
std::string format_integer_literal(double value, std::string_view suffix) {
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min()), high = static_cast<double>(std::numeric_limits<T>::max());
  if (value < low || value > high || value != std::floor(value))
    throw Error(format_float_literal(value) + " is not a value of " + std::string(std::is_signed_v<T> ? "a signed" : "an unsigned") +
                " integer of " + std::to_string(sizeof(T) * 8) + " bits");
  if (std::is_signed_v<T> && value == low)
    return "(" + std::to_string(std::numeric_limits<T>::min() + T{1}) + std::string(suffix) + " - 1" + std::string(suffix) + ")";
  const std::string text = std::to_string(static_cast<T>(value)) + std::string(suffix);
  return value < 0 ? "(" + text + ")" : text;
}

std::string format_literal(const ExprNode& node, ExprType type) {
  switch (type) {
    case ExprType::f32:
      return format_float_literal(node.value);
    case ExprType::f64:
      return format_double_literal(node.value);
    case ExprType::i32:
      return format_integer_literal<int32_t>(node.value, "");
    case ExprType::u32:
      return format_integer_literal<uint32_t>(node.value, "u");
    case ExprType::i64:
      return format_integer_literal<int64_t>(node.value, "L");
    case ExprType::u64:
      return format_integer_literal<uint64_t>(node.value, "UL");
    default:
      throw Error("expected true or false; given the number " + format_expression(node));
  }
}

ExprType parse_cast_type(std::string_view name) {
  constexpr std::string_view names[] = {"bool", "i32", "u32", "i64", "u64", "f32", "f64"};
  size_t i = 0;
  while (names[i] != name) ++i;
  return static_cast<ExprType>(i);
}

// Type of a node; nullopt for a literal, which adopts the type of the other operand.
using InferredType = std::optional<ExprType>;

// Infers the types of the nodes of a tree, and caches the type of each node.
class TypeInference {
 public:
  explicit TypeInference(const std::map<std::string, ExprType>& names)
      : names_(names),
        has_doubles_(std::any_of(names.begin(), names.end(), [](const auto& name) { return name.second == ExprType::f64; })) {}

  InferredType infer_type(const ExprNode& node) {
    if (const auto found = types_by_node_.find(&node); found != types_by_node_.end()) return found->second;
    const InferredType type = infer_uncached(node);
    types_by_node_.emplace(&node, type);
    return type;
  }

  ExprType infer_type_or_float(const ExprNode& node) { return infer_type(node).value_or(ExprType::f32); }

  // Returns the common type of operands `a` and `b`; a literal adopts the type of the other operand.
  InferredType infer_common_type(const ExprNode& node, const ExprNode& a, const ExprNode& b) {
    const InferredType left = infer_type(a), right = infer_type(b);
    if (left && right && *left != *right)
      fail(node, std::string(get_glsl_type_name(*left)) + " and " + std::string(get_glsl_type_name(*right)) + " do not combine");
    return left ? left : right;
  }

 private:
  [[noreturn]] static void fail(const ExprNode& node, const std::string& message) {
    throw Error("expression '" + format_expression(node) + "': " + message);
  }

  static void require(const ExprNode& node, bool condition, std::string_view expected, InferredType actual) {
    if (!condition)
      fail(node, "expected " + std::string(expected) + "; given " + std::string(actual ? get_glsl_type_name(*actual) : "a number"));
  }

  InferredType infer_uncached(const ExprNode& node) {
    switch (node.kind) {
      case ExprKind::literal:
        return node.real && !has_doubles_ ? InferredType(ExprType::f32) : std::nullopt;
      case ExprKind::bool_literal:
        return ExprType::boolean;
      case ExprKind::name:
        return infer_name(node);
      case ExprKind::unary:
        return infer_unary(node);
      case ExprKind::binary:
        return infer_binary(node);
      case ExprKind::conditional:
        return infer_conditional(node);
      case ExprKind::call:
        return infer_call(node);
      case ExprKind::absent:
        throw Error("an omitted operand is needed");
      default:
        fail(node, "a string can only be compared with a string");
    }
  }

  InferredType infer_name(const ExprNode& node) const {
    const auto found = names_.find(node.text);
    if (found == names_.end()) fail(node, "no type given for this name");
    return found->second;
  }

  InferredType infer_unary(const ExprNode& node) {
    const InferredType type = infer_type(*node.children[0]);
    if (node.text == "!") require(node, type == ExprType::boolean, "bool", type);
    if (node.text == "-") require(node, type != ExprType::boolean, "a number", type);
    if (node.text == "~") require(node, type && is_integer(*type), "an integer", type);
    return type;
  }

  InferredType infer_binary(const ExprNode& node) {
    const InferredType type = infer_common_type(node, *node.children[0], *node.children[1]);
    if (is_one_of(node.text, {"==", "!="})) return ExprType::boolean;
    if (is_one_of(node.text, {"&&", "||"})) return require(node, type == ExprType::boolean, "bool", type), type;
    if (is_one_of(node.text, {"&", "|", "^"})) return require(node, !type || !is_real(*type), "integers or bool", type), type;
    require(node, type != ExprType::boolean, "numbers", type);
    if (is_one_of(node.text, {"<", "<=", ">", ">="})) return ExprType::boolean;
    if (is_one_of(node.text, {"<<", ">>", "%"})) require(node, !type || is_integer(*type), "integers", type);
    return type;
  }

  InferredType infer_conditional(const ExprNode& node) {
    const InferredType condition = infer_type(*node.children[0]);
    require(node, condition == ExprType::boolean, "bool as the condition", condition);
    return infer_common_type(node, *node.children[1], *node.children[2]);
  }

  InferredType infer_call(const ExprNode& node) {
    const ExprFunction& function = *find_expr_function(node.text);
    const InferredType first = infer_type(*node.children[0]);
    if (function.signature == Signature::cast) return parse_cast_type(node.text);
    require(node, first != ExprType::boolean, "numbers", first);
    if (node.text == "pow" && first) return infer_power(node, *first);
    if (function.signature == Signature::same)
      return node.children.size() == 1 ? first : infer_common_type(node, *node.children[0], *node.children[1]);
    require(node, !first || first == ExprType::f32 || (first == ExprType::f64 && function.has_double), "float", first);
    return function.signature == Signature::real ? first.value_or(ExprType::f32) : ExprType::boolean;
  }

  // ONNX allows a different type for the exponent; the result has the base's type.
  InferredType infer_power(const ExprNode& node, ExprType base) {
    const InferredType exponent = infer_type(*node.children[1]);
    require(node, exponent != ExprType::boolean, "numbers", exponent);
    return base;
  }

  const std::map<std::string, ExprType>& names_;
  bool has_doubles_;  // if true, a non-integer literal may be f32 or f64
  std::unordered_map<const ExprNode*, InferredType> types_by_node_;
};

// Generates GLSL for an expression tree.
class GlslEmitter {
 public:
  explicit GlslEmitter(const std::map<std::string, ExprType>& names) : types_(names) {}

  ExprType infer_result_type(const ExprNode& root) { return types_.infer_type_or_float(root); }
  std::string emit_root(const ExprNode& node) { return emit(node, infer_result_type(node)); }

 private:
  // Returns GLSL for a node. `type`: type of the node; for a literal, the type that its context requires.
  std::string emit(const ExprNode& node, ExprType type) {
    std::string code = node.kind == ExprKind::literal ? format_literal(node, type) : emit_operation(node, type);
    if (code.size() > kMaxExpressionChars) throw Error("an expression of over " + std::to_string(kMaxExpressionChars) + " characters");
    return code;
  }

  std::string emit_operation(const ExprNode& node, ExprType type) {
    switch (node.kind) {
      case ExprKind::bool_literal:
        return node.text;
      case ExprKind::name:
        return node.text;
      case ExprKind::unary:
        return "(" + node.text + emit(*node.children[0], type) + ")";
      case ExprKind::binary:
        return emit_binary(node);
      case ExprKind::conditional:
        return emit_conditional(node, type);
      default:
        return emit_call(node, type);
    }
  }

  // pm_flush_subnormals flushes the result, so that a subnormal that the condition compared as zero is not returned as a nonzero number.
  std::string emit_conditional(const ExprNode& node, ExprType type) {
    const std::string chosen = "(" + emit(*node.children[0], ExprType::boolean) + " ? " + emit(*node.children[1], type) + " : " +
                               emit(*node.children[2], type) + ")";
    return type == ExprType::f32 && node.children[0]->kind != ExprKind::name ? "pm_flush_subnormals" + chosen : chosen;
  }

  // Returns GLSL for an operand of an arithmetic operation. Hides literal zeros from the driver's compiler, because some (lavapipe)
  // simplify x + 0 to x, and x * 0 and x / 0 to 0.
  std::string emit_operand(const ExprNode& node, ExprType type) {
    const bool negated = node.kind == ExprKind::unary && node.text == "-" && node.children[0]->kind == ExprKind::literal;
    const ExprNode& number = negated ? *node.children[0] : node;
    if (number.kind != ExprKind::literal || number.value != 0) return emit(node, type);
    const char* const zero = type == ExprType::f32 ? "pm_zero()" : "pm_double_zero()";
    return std::signbit(static_cast<double>(number.value)) != negated ? std::string("(-") + zero + ")" : zero;
  }

  std::string emit_binary(const ExprNode& node) {
    const ExprNode &a = *node.children[0], &b = *node.children[1];
    const ExprType type = infer_operand_type(node);
    std::string symbol = node.text;
    if (type == ExprType::boolean && is_one_of(symbol, {"&", "|", "^"})) symbol += symbol;
    if (is_real(type) && is_one_of(symbol, {"+", "-", "*", "/"})) {
      const std::string left = emit_operand(a, type), right = emit_operand(b, type);
      if (symbol == "/" && type == ExprType::f32) return "pm_divide(" + left + ", " + right + ")";
      return "(" + left + " " + symbol + " " + right + ")";
    }
    return "(" + emit(a, type) + " " + symbol + " " + emit(b, type) + ")";
  }

  // Returns the type of a node's operands. If all are literals, it is float, or int if the operator needs integers.
  ExprType infer_operand_type(const ExprNode& node) {
    const InferredType type = types_.infer_common_type(node, *node.children[0], *node.children[1]);
    const ExprType fallback = is_one_of(node.text, {"<<", ">>", "%", "&", "|", "^"}) ? ExprType::i32 : ExprType::f32;
    return type.value_or(types_.infer_type(node).value_or(fallback) == ExprType::boolean ? ExprType::f32 : fallback);
  }

  std::string emit_call(const ExprNode& node, ExprType type) {
    const ExprFunction& function = *find_expr_function(node.text);
    if (function.signature == Signature::cast) {
      const ExprType from = types_.infer_type_or_float(*node.children[0]);
      const bool saturates = is_real(from) && is_integer(type);
      if (from == ExprType::i32 && (type == ExprType::i64 || type == ExprType::u64))
        return (type == ExprType::u64 ? "uint64_t(pm_int64_t(" : "pm_int64_t(") + emit(*node.children[0], from) +
               (type == ExprType::u64 ? "))" : ")");
      const bool converts = from == ExprType::u32 && type == ExprType::f32;
      return (saturates ? "pm_to_" : converts ? "pm_" : "") + std::string(function.glsl) + "(" + emit(*node.children[0], from) + ")";
    }
    const ExprType operand = function.signature == Signature::real_test ? types_.infer_type_or_float(*node.children[0]) : type;
    if (node.text == "pow") return emit_pow(node, operand);
    if (node.text == "abs" && (operand == ExprType::u32 || operand == ExprType::u64)) return emit(*node.children[0], operand);
    std::string result = std::string(function.glsl) + "(" + emit(*node.children[0], operand);
    if (node.children.size() > 1) result += ", " + emit(*node.children[1], operand);
    return result + ")";
  }

  // The integer overloads of pm_pow also accept a float exponent.
  std::string emit_pow(const ExprNode& node, ExprType base) {
    const ExprType exponent = types_.infer_type(*node.children[1]).value_or(node.children[1]->real ? ExprType::f32 : base);
    std::string value = emit(*node.children[1], exponent);
    if (exponent != base && (exponent != ExprType::f32 || base == ExprType::f64))
      value = std::string(get_glsl_type_name(base)) + "(" + value + ")";
    return "pm_pow(" + emit(*node.children[0], base) + ", " + value + ")";
  }

  TypeInference types_;
};

std::string format_leaf(const ExprNode& node) {
  switch (node.kind) {
    case ExprKind::literal:
      return format_float_literal(node.value);
    case ExprKind::text:
      return "'" + node.text + "'";
    case ExprKind::absent:
      return "(absent)";
    default:
      return node.text;
  }
}

void append_formatted(const ExprNode& node, std::string& text) {
  if (text.size() > 200) return;
  const auto child = [&](size_t i) { append_formatted(*node.children[i], text); };
  if (node.children.empty()) {
    text += format_leaf(node);
  } else if (node.kind == ExprKind::unary || node.kind == ExprKind::call) {
    text += node.text + "(";
    for (size_t i = 0; i < node.children.size(); ++i) text += i ? ", " : "", child(i);
    text += ")";
  } else {
    text += "(", child(0), text += " " + node.text + " ", child(1);
    if (node.kind == ExprKind::conditional) text += " : ", child(2);
    text += ")";
  }
}

}  // namespace

std::string format_expression(const ExprNode& node) {
  std::string text;
  append_formatted(node, text);
  return text.size() > 200 ? text.substr(0, 197) + "..." : text;
}

std::string Expression::to_glsl(const std::map<std::string, ExprType>& types, ExprType* type) const {
  GlslEmitter emitter(types);
  std::string text = emitter.emit_root(*root_);
  if (type) *type = emitter.infer_result_type(*root_);
  return text;
}

}  // namespace pumice
