// NNAPI operations as compound operations of graphs.
#pragma once

#include "graph/description/compound_operation.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

// Returns the compound operation. Operands are in the order of NNAPI; scale, zero_point and dtype of the output are attributes.
const CompoundOperation& get_compound_operation(const Operation& operation);

}  // namespace pumice::nnapi
