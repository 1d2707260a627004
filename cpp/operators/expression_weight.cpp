// What an expression costs a driver to compile: operations of what its functions expand to.
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "operators/expression.h"
#include "operators/expression_node.h"

namespace pumice {
namespace {

constexpr uint64_t kOperation = 4;  // of an operator: one instruction, and its text in the compiler's front end
constexpr uint64_t kBranch = 8;     // of a condition besides: drivers of processors run both sides under masks
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 8;

// Instructions of a function's SPIR-V with those that it calls, each conditional branch counted as kBranch more.
struct FunctionWeight {
  std::string_view name;
  uint64_t of_float, of_double;
};

constexpr std::array kWeights{
    FunctionWeight{"abs", 1, 1},           FunctionWeight{"sign", 12, 12},        FunctionWeight{"min", 16, 19},
    FunctionWeight{"max", 16, 19},         FunctionWeight{"divide", 25, 4},       FunctionWeight{"pow", 466, 466},
    FunctionWeight{"fmod", 143, 113},      FunctionWeight{"mod", 183, 155},       FunctionWeight{"shift_left", 13, 13},
    FunctionWeight{"shift_right", 13, 13}, FunctionWeight{"exp", 51, 137},        FunctionWeight{"expm1", 117, 176},
    FunctionWeight{"log", 86, 114},        FunctionWeight{"log1p", 215, 200},     FunctionWeight{"sqrt", 1, 1},
    FunctionWeight{"erf", 115, 372},       FunctionWeight{"normal_cdf", 89, 375}, FunctionWeight{"sigmoid", 57, 143},
    FunctionWeight{"softplus", 271, 357},  FunctionWeight{"floor", 1, 60},        FunctionWeight{"ceil", 1, 60},
    FunctionWeight{"trunc", 1, 49},        FunctionWeight{"round_even", 1, 135},  FunctionWeight{"sin", 322, 220},
    FunctionWeight{"cos", 321, 210},       FunctionWeight{"tan", 322, 441},       FunctionWeight{"asin", 61, 118},
    FunctionWeight{"acos", 68, 109},       FunctionWeight{"atan", 56, 82},        FunctionWeight{"sinh", 145, 364},
    FunctionWeight{"cosh", 119, 156},      FunctionWeight{"tanh", 90, 204},       FunctionWeight{"asinh", 325, 383},
    FunctionWeight{"acosh", 329, 349},     FunctionWeight{"atanh", 260, 260},     FunctionWeight{"isnan", 4, 7},
    FunctionWeight{"isinf", 4, 15},        FunctionWeight{"bool", 2, 2},          FunctionWeight{"i32", 24, 24},
    FunctionWeight{"u32", 24, 24},         FunctionWeight{"i64", 24, 24},         FunctionWeight{"u64", 24, 24},
    FunctionWeight{"f32", 2, 2},           FunctionWeight{"f64", 2, 2},
};

// An exponent by which pm_pow comes to a comparison that is decided and a product.
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
      const auto found = std::ranges::find(kWeights, std::string_view(node.text), &FunctionWeight::name);
      return kOperation + (found == kWeights.end() ? kMost : has_doubles ? found->of_double : found->of_float);
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
