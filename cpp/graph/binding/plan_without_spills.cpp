#include "graph/binding/plan_without_spills.h"

#include <mutex>
#include <regex>

namespace pumice {
namespace {

// The pattern of simulate_spills().
struct SimulatedSpills {
  std::mutex mutex;
  std::optional<std::regex> pattern;

  bool matches(const std::string& variant) {
    const std::lock_guard lock(mutex);
    return pattern && std::regex_match(variant, *pattern);
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
    if (!step.variant.empty() && (step.kernel->query_spills() > 0 || simulated.matches(step.variant)))
      is_new |= spilled.add(step.label, step.variant);
  return is_new;
}

}  // namespace

void simulate_spills(const std::string& pattern) {
  SimulatedSpills& simulated = get_simulated_spills();
  std::optional<std::regex> compiled;
  if (!pattern.empty()) compiled.emplace(pattern);
  const std::lock_guard lock(simulated.mutex);
  simulated.pattern = std::move(compiled);
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
