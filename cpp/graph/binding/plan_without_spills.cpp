#include "graph/binding/plan_without_spills.h"

#include <fnmatch.h>

#include <algorithm>
#include <mutex>

namespace pumice {
namespace {

// The patterns of simulate_spills().
struct SimulatedSpills {
  std::mutex mutex;
  std::vector<std::string> patterns;

  bool match(const std::string& variant) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(patterns, [&](const std::string& pattern) { return fnmatch(pattern.c_str(), variant.c_str(), 0) == 0; });
  }
};
SimulatedSpills& get_simulated_spills() {
  static SimulatedSpills simulated;
  return simulated;
}

// Adds the variants whose new kernels spill registers according to the driver. Returns whether any was added.
bool add_reported_spills(const ExecutionPlan& plan, SpilledVariants& spilled) {
  bool is_new = false;
  SimulatedSpills& simulated = get_simulated_spills();
  for (const PlannedStep& step : plan.steps)
    if (!step.variant.empty() && (step.kernel->query_spills() > 0 || simulated.match(step.variant)))
      is_new |= spilled.add(step.label, step.variant);
  return is_new;
}

}  // namespace

void simulate_spills(std::vector<std::string> patterns) {
  SimulatedSpills& simulated = get_simulated_spills();
  const std::lock_guard lock(simulated.mutex);
  simulated.patterns = std::move(patterns);
}

BoundPlan plan_without_spills(const std::function<BoundPlan()>& make_plan, const std::function<void(const ExecutionPlan&)>& build_kernels,
                              SpilledVariants& spilled) {
  for (;;) {
    BoundPlan bound = make_plan();
    build_kernels(bound.plan);
    if (!add_reported_spills(bound.plan, spilled)) return bound;
  }
}

}  // namespace pumice
