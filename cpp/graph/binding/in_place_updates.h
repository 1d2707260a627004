// Finds program inputs that may share memory with an output (updates in place).
#pragma once

#include <cstddef>

#include "operators/compiled/compiled_operator.h"

namespace pumice {

// Adds to plan.updates each input, among the first `inputs`, whose only use is a copy to an output of the same shape and dtype.
void find_in_place_updates(ExecutionPlan& plan, size_t inputs);

}  // namespace pumice
