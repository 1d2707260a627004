// Estimates a driver's compile cost of an expression: the number of operations after inlining.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "operators/expression/expression.h"
#include "operators/expression/expression_node.h"

namespace pumice {
namespace {

constexpr uint64_t kOperation = 4;  // weight of an operator: one instruction, plus parsing
constexpr uint64_t kBranch = 8;     // extra weight of a condition: CPU drivers execute both sides under masks
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 8;

// Whether pow has a constant exponent of 0, 1 or 2, so that pm_pow folds to a multiplication.
bool is_plain_power(const ExprNode& node) {
  const ExprNode& exponent = *node.children[1];
  return exponent.kind == ExprKind::literal && (exponent.value == 0 || exponent.value == 1 || exponent.value == 2);
}

uint64_t own_weight(const ExprNode& node, bool has_doubles) {
  switch (node.kind) {
    case ExprKind::unary:
    case ExprKind::binary:
      return kOperation;
    case ExprKind::conditional:
      return kOperation + kBranch;
    case ExprKind::call: {
      if (node.text == "pow" && is_plain_power(node)) return kOperation;
      const FunctionWeight& weight = find_expr_function(node.text)->weight;
      return kOperation + (has_doubles ? weight.of_double : weight.of_float);
    }
    default:
      return 0;
  }
}

class Weights {
 public:
  explicit Weights(bool has_doubles) : has_doubles_(has_doubles) {}

  uint64_t of(const ExprNode& node) {
    if (const auto found = known_.find(&node); found != known_.end()) return found->second;
    uint64_t weight = own_weight(node, has_doubles_);
    for (const ExprPtr& child : node.children) weight = std::min(weight + of(*child), kMost);
    return known_[&node] = weight;
  }

 private:
  bool has_doubles_;
  std::unordered_map<const ExprNode*, uint64_t> known_;
};

}  // namespace

uint64_t Expression::weight(bool has_doubles) const {
  return Weights(has_doubles).of(*root_);
}

}  // namespace pumice
