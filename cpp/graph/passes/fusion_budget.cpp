#include "graph/passes/fusion_budget.h"

#include <algorithm>

namespace pumice {
namespace {

// Limits the compile time to half a second on a slow CPU with a CPU driver: lavapipe needs 0.35 ms for eight units of weight.
constexpr uint64_t kMaxKernelWeight = 11200;
constexpr uint64_t kPipelineWeight = 1200;  // fixed cost of a pipeline, in the same unit
// In a program with thousands of different elementwise expressions, the first ones are fused and the others use the kernels of their
// operators.
constexpr uint64_t kMaxProgramWeight = 40 * kMaxKernelWeight;

}  // namespace

uint64_t count_elementwise_copies(DType stored) {
  return 4 * static_cast<uint64_t>(32 / std::clamp<int64_t>(bits(stored), 8, 32)) + 4;
}

bool FusionBudget::allows_expression(const Expression& expression, bool has_doubles, uint64_t copies) {
  return expression.estimate_compile_cost(has_doubles) <= kMaxKernelWeight / copies;
}

bool FusionBudget::replace(const FusedKernel& before, const FusedKernel& after) {
  const uint64_t spent = spent_;
  remove(before);
  add(after);
  if (spent_ <= std::max(kMaxProgramWeight, spent)) return true;
  remove(after);
  add(before);
  return false;
}

void FusionBudget::add(const FusedKernel& kernel) {
  if (kernel.key.empty()) return;
  KernelUse& use = uses_[kernel.key];
  if (use.count++ > 0) return;
  use.weight = kernel.weight + kPipelineWeight;
  spent_ += use.weight;
}

void FusionBudget::remove(const FusedKernel& kernel) {
  if (kernel.key.empty()) return;
  const auto found = uses_.find(kernel.key);
  if (found == uses_.end() || --found->second.count > 0) return;
  spent_ -= found->second.weight;
  uses_.erase(found);
}

}  // namespace pumice
