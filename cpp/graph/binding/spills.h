// Plans of which no kernel spills.
#pragma once

#include <functional>

#include "graph/binding/plan.h"
#include "operators/row/spilled_variants.h"

namespace pumice {

// Plans, and makes the kernels. Where one of them spills, as the process or the cache knows or the driver tells of one that was made, its
// variant is added to `spilled` and it is planned again, until no kernel spills that another one could stand for.
BoundPlan plan_without_spills(const std::function<BoundPlan()>& planned, const std::function<void(const Plan&)>& make_kernels,
                              SpilledVariants& spilled);

}  // namespace pumice
