// Estimates how expensive an expression is to compile, as the number of operations after inlining.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

constexpr uint64_t kOperationCost = 4;  // cost of an operator: one instruction, plus parsing
constexpr uint64_t kBranchCost = 8;     // extra cost of a conditional: CPU drivers execute both branches under masks
constexpr uint64_t kMaxCost = std::numeric_limits<uint64_t>::max() / 8;

// Whether the node is a pow with a constant exponent of 0, 1 or 2, which the compiler folds to at most one multiplication.
bool is_small_constant_power(const ExprNode& node) {
  const ExprNode& exponent = *node.children[1];
  return exponent.kind == ExprKind::literal && (exponent.value == 0 || exponent.value == 1 || exponent.value == 2);
}

uint64_t compute_node_cost(const ExprNode& node, bool has_doubles) {
  switch (node.kind) {
    case ExprKind::unary:
    case ExprKind::binary:
      return kOperationCost;
    case ExprKind::conditional:
      return kOperationCost + kBranchCost;
    case ExprKind::call: {
      if (node.text == "pow" && is_small_constant_power(node)) return kOperationCost;
      const FunctionCost& cost = find_expr_function(node.text)->cost;
      return kOperationCost + (has_doubles ? cost.fp64_cost : cost.fp32_cost);
    }
    default:
      return 0;
  }
}

class CompileCostEstimator {
 public:
  explicit CompileCostEstimator(bool has_doubles) : has_doubles_(has_doubles) {}

  uint64_t estimate(const ExprNode& node) {
    if (const auto found = costs_.find(&node); found != costs_.end()) return found->second;
    uint64_t cost = compute_node_cost(node, has_doubles_);
    for (const ExprPtr& child : node.children) cost = std::min(cost + estimate(*child), kMaxCost);
    return costs_[&node] = cost;
  }

 private:
  bool has_doubles_;
  std::unordered_map<const ExprNode*, uint64_t> costs_;
};

}  // namespace

uint64_t Expression::estimate_compile_cost(bool has_doubles) const {
  return CompileCostEstimator(has_doubles).estimate(*root_);
}

}  // namespace pumice
