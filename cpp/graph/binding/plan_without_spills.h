// Re-plans until no kernel spills registers.
#pragma once

#include <functional>

#include "graph/binding/plan.h"
#include "operators/table/spilled_variants.h"

namespace pumice {

// Plans a program and builds its kernels. bind_plan() avoids variants known to spill. If the driver reports that a new kernel spills, its
// variant is added to `spilled` and planning restarts, until no kernel with an alternative variant spills.
BoundPlan plan_without_spills(const std::function<BoundPlan()>& make_plan, const std::function<void(const ExecutionPlan&)>& build_kernels,
                              SpilledVariants& spilled);

// Treats variants whose names match one of these wildcard patterns (fnmatch(3)) as spilling, in later plans of this process. For tests.
void simulate_spills(std::vector<std::string> patterns);

}  // namespace pumice
