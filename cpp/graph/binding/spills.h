// Plans of which no kernel spills.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/binding/plan.h"
#include "operators/row/spilled_variants.h"

namespace pumice {

// Adds the variants of a node's steps whose kernels spill, as the process or the cache knows: the driver is asked of none. True where one
// was added.
bool add_known_spills(const std::string& node, const std::vector<Step>& steps, SpilledVariants& spilled);

// Whether a step runs one of these variants.
bool takes_spilled(const std::vector<Step>& steps, const VariantNames* spilled);

// Plans, and makes the kernels. bind_plan() takes no variant that is known to spill: only where the driver tells it of a kernel that has
// just been made, the variant is added to `spilled` and it is planned again, until no kernel spills that another one could stand for.
BoundPlan plan_without_spills(const std::function<BoundPlan()>& planned, const std::function<void(const Plan&)>& make_kernels,
                              SpilledVariants& spilled);

}  // namespace pumice
