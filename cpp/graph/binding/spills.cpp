#include "graph/binding/spills.h"

namespace pumice {
namespace {

// Adds the variants of steps whose kernels spill. `known`: the driver is asked of none. True where one was added.
bool add_spills(const Plan& plan, bool known, SpilledVariants& spilled) {
  bool is_new = false;
  for (const PlannedStep& step : plan.steps) {
    if (step.variant.empty()) continue;
    const uint64_t spills = known ? step.kernel->known_spills().value_or(0) : step.kernel->spills();
    if (spills > 0) is_new |= spilled.add(step.label, step.variant);
  }
  return is_new;
}

}  // namespace

BoundPlan plan_without_spills(const std::function<BoundPlan()>& planned, const std::function<void(const Plan&)>& make_kernels,
                              SpilledVariants& spilled) {
  for (;;) {
    BoundPlan bound = planned();
    if (add_spills(bound.plan, true, spilled)) continue;
    make_kernels(bound.plan);
    if (!add_spills(bound.plan, false, spilled)) return bound;
  }
}

}  // namespace pumice
