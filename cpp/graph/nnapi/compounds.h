// NNAPI operations as compound operations of graphs.
#pragma once

#include "graph/description/compound_operation.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

// Returns the compound operation. Its operands are in NNAPI's order; the output's scale, zero_point and dtype are attributes.
const CompoundOperation& get_compound(const Operation& operation);

}  // namespace pumice::nnapi
