// Estimates a driver's compile cost of an expression: the number of operations after inlining.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

constexpr uint64_t kOperationCost = 4;  // weight of an operator: one instruction, plus parsing
constexpr uint64_t kBranchCost = 8;     // extra weight of a condition: CPU drivers execute both sides under masks
constexpr uint64_t kMaxCost = std::numeric_limits<uint64_t>::max() / 8;

// Whether pow has a constant exponent of 0, 1 or 2, so that pm_pow folds to a multiplication.
bool is_small_constant_power(const ExprNode& node) {
  const ExprNode& exponent = *node.children[1];
  return exponent.kind == ExprKind::literal && (exponent.value == 0 || exponent.value == 1 || exponent.value == 2);
}

uint64_t node_cost(const ExprNode& node, bool has_doubles) {
  switch (node.kind) {
    case ExprKind::unary:
    case ExprKind::binary:
      return kOperationCost;
    case ExprKind::conditional:
      return kOperationCost + kBranchCost;
    case ExprKind::call: {
      if (node.text == "pow" && is_small_constant_power(node)) return kOperationCost;
      const FunctionCost& weight = find_expr_function(node.text)->weight;
      return kOperationCost + (has_doubles ? weight.fp64_cost : weight.fp32_cost);
    }
    default:
      return 0;
  }
}

class CostEstimator {
 public:
  explicit CostEstimator(bool has_doubles) : has_doubles_(has_doubles) {}

  uint64_t cost(const ExprNode& node) {
    if (const auto found = costs_.find(&node); found != costs_.end()) return found->second;
    uint64_t weight = node_cost(node, has_doubles_);
    for (const ExprPtr& child : node.children) weight = std::min(weight + cost(*child), kMaxCost);
    return costs_[&node] = weight;
  }

 private:
  bool has_doubles_;
  std::unordered_map<const ExprNode*, uint64_t> costs_;
};

}  // namespace

uint64_t Expression::weight(bool has_doubles) const {
  return CostEstimator(has_doubles).cost(*root_);
}

}  // namespace pumice
