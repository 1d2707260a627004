#include "graph/binding/plan_without_spills.h"

namespace pumice {
namespace {

// Adds the variants whose new kernels spill registers according to the driver. Returns whether any was added.
bool add_reported_spills(const ExecutionPlan& plan, SpilledVariants& spilled) {
  bool is_new = false;
  for (const PlannedStep& step : plan.steps)
    if (!step.variant.empty() && step.kernel->query_spills() > 0) is_new |= spilled.add(step.label, step.variant);
  return is_new;
}

}  // namespace

BoundPlan plan_without_spills(const std::function<BoundPlan()>& make_plan, const std::function<void(const ExecutionPlan&)>& build_kernels,
                              SpilledVariants& spilled) {
  for (;;) {
    BoundPlan bound = make_plan();
    build_kernels(bound.plan);
    if (!add_reported_spills(bound.plan, spilled)) return bound;
  }
}

}  // namespace pumice
