// Plans of which no kernel spills.
#pragma once

#include <functional>

#include "graph/binding/plan.h"
#include "operators/row/spilled_variants.h"

namespace pumice {

// Plans, and makes the kernels. bind_plan() takes no variant that is known to spill: only where the driver tells it of a kernel that has
// just been made, the variant is added to `spilled` and it is planned again, until no kernel spills that another one could stand for.
BoundPlan plan_without_spills(const std::function<BoundPlan()>& planned, const std::function<void(const Plan&)>& make_kernels,
                              SpilledVariants& spilled);

}  // namespace pumice
