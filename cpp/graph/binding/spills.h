// Re-plans until no kernel spills registers.
#pragma once

#include <functional>

#include "graph/binding/plan.h"
#include "operators/table/spilled_variants.h"

namespace pumice {

// Plans and builds the kernels. bind_plan() avoids variants known to spill. If the driver reports a spill in a newly built kernel, its
// variant is added to `spilled` and planning restarts, until no kernel with an alternative spills.
BoundPlan plan_without_spills(const std::function<BoundPlan()>& make_plan, const std::function<void(const Plan&)>& build_kernels,
                              SpilledVariants& spilled);

}  // namespace pumice
