#include "operators/expression/expression.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

ExprPtr make_bool(bool value) {
  return std::make_shared<ExprNode>(ExprNode{ExprKind::bool_literal, value ? "true" : "false", value ? 1.0 : 0.0, false, {}});
}

bool is_constant(const ExprNode& node) {
  return node.kind == ExprKind::literal || node.kind == ExprKind::bool_literal || node.kind == ExprKind::text;
}

std::optional<bool> fold_comparison(const ExprNode& node) {
  const ExprNode &a = *node.children[0], &b = *node.children[1];
  if (!is_constant(a) || !is_constant(b) || a.kind != b.kind) return {};
  if (a.kind == ExprKind::text)
    return node.text == "==" || node.text == "!=" ? evaluate_comparison(node.text, a.text, b.text) : std::nullopt;
  return evaluate_comparison(node.text, a.value, b.value);
}

// Simplifies && and || if one side, left or right, is a constant.
ExprPtr simplify_logical(const ExprNode& node) {
  const bool neutral = node.text == "&&";
  if (!neutral && node.text != "||") return nullptr;
  for (size_t i = 0; i < 2; ++i) {
    const ExprPtr& child = node.children[i];
    if (child->kind == ExprKind::bool_literal) return (child->value != 0) == neutral ? node.children[1 - i] : child;
  }
  return nullptr;
}

// Simplifies a min, max or sum with an absent operand to its other operand.
ExprPtr drop_absent_operand(const ExprNode& node) {
  if (node.text != "min" && node.text != "max" && node.text != "+") return nullptr;
  if (node.children[0]->kind == ExprKind::absent) return node.children[1];
  return node.children[1]->kind == ExprKind::absent ? node.children[0] : nullptr;
}

ExprPtr simplify_unary(const ExprNode& node) {
  const ExprNode& operand = *node.children[0];
  if (node.text == "-" && operand.kind == ExprKind::literal)
    return std::make_shared<ExprNode>(ExprNode{ExprKind::literal, {}, -operand.value, operand.real, {}});
  if (node.text == "!" && operand.kind == ExprKind::bool_literal) return make_bool(operand.value == 0);
  return nullptr;
}

ExprPtr simplify(const ExprNode& node) {
  if (node.kind == ExprKind::unary) return simplify_unary(node);
  if (node.kind == ExprKind::conditional && node.children[0]->kind == ExprKind::bool_literal)
    return node.children[node.children[0]->value != 0 ? 1 : 2];
  if (node.kind == ExprKind::call && node.children.size() == 2) return drop_absent_operand(node);
  if (node.kind != ExprKind::binary) return nullptr;
  if (const auto bool_literal = fold_comparison(node)) return make_bool(*bool_literal);
  if (ExprPtr simpler = simplify_logical(node)) return simpler;
  return drop_absent_operand(node);
}

void collect_names(const ExprNode& node, std::unordered_set<const ExprNode*>& seen, std::vector<std::string>& names) {
  if (!seen.insert(&node).second) return;
  if (node.kind == ExprKind::name && std::find(names.begin(), names.end(), node.text) == names.end()) names.push_back(node.text);
  for (const ExprPtr& child : node.children) collect_names(*child, seen, names);
}

using RebuiltNodes = std::unordered_map<const ExprNode*, ExprPtr>;

// Returns a copy of the tree in which names are replaced. Rebuilds each shared node only once.
ExprPtr substitute_names(const ExprPtr& node, const std::map<std::string, ExprPtr>& replacements, RebuiltNodes& rebuilt) {
  if (const auto found = rebuilt.find(node.get()); found != rebuilt.end()) return found->second;
  ExprPtr result = node;
  if (node->kind == ExprKind::name) {
    if (const auto found = replacements.find(node->text); found != replacements.end()) result = found->second;
  } else if (!node->children.empty()) {
    ExprNode copy = *node;
    for (ExprPtr& child : copy.children) child = substitute_names(child, replacements, rebuilt);
    if (copy.children != node->children) result = make_node(std::move(copy));
  }
  return rebuilt[node.get()] = result;
}

}  // namespace

ExprPtr make_node(ExprNode node) {
  if (ExprPtr simpler = simplify(node)) return simpler;
  return std::make_shared<ExprNode>(std::move(node));
}

ExprPtr make_literal(double value) {
  const bool integral = std::floor(value) == value && std::fabs(value) < 9007199254740992.0;
  return make_node({ExprKind::literal, {}, value, !integral, {}});
}

ExprType to_expr_type(DType dtype) {
  if (is_float(dtype)) return dtype == DType::float64 ? ExprType::f64 : ExprType::f32;
  switch (dtype) {
    case DType::bool_:
      return ExprType::boolean;
    case DType::int64:
      return ExprType::i64;
    case DType::uint64:
      return ExprType::u64;
    default:
      return is_signed_integer(dtype) ? ExprType::i32 : ExprType::u32;
  }
}

std::string_view get_glsl_type_name(ExprType type) {
  constexpr std::string_view names[] = {"bool", "int", "uint", "int64_t", "uint64_t", "float", "double"};
  return names[static_cast<size_t>(type)];
}

Expression::Expression(std::shared_ptr<const ExprNode> root) : root_(std::move(root)) {
  std::unordered_set<const ExprNode*> seen;
  collect_names(*root_, seen, names_);
}

Expression Expression::parse(std::string_view text) {
  return Expression(parse_expression(text));
}

Expression Expression::literal(double value) {
  return Expression(make_literal(value));
}

Expression Expression::name(std::string_view name) {
  return Expression(make_node({ExprKind::name, std::string(name), 0, false, {}}));
}

Expression Expression::text(std::string_view text) {
  return Expression(make_node({ExprKind::text, std::string(text), 0, false, {}}));
}

Expression Expression::absent() {
  return Expression(make_node({ExprKind::absent, {}, 0, false, {}}));
}

Expression Expression::substitute(const std::map<std::string, Expression>& replacements) const {
  std::map<std::string, ExprPtr> roots;
  for (const auto& [name, expression] : replacements) roots.emplace(name, expression.root_);
  RebuiltNodes rebuilt;
  return Expression(substitute_names(root_, roots, rebuilt));
}

}  // namespace pumice
