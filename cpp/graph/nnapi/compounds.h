// The operations of NNAPI as graphs take them.
#pragma once

#include "graph/description/compound_operation.h"
#include "graph/nnapi/operations.h"

namespace pumice::nnapi {

// An operation of NNAPI as graphs take it. Its operands are in NNAPI's own order; scale, zero_point and dtype of its output operand are
// attributes.
const CompoundOperation& compound_of(const Operation& operation);

}  // namespace pumice::nnapi
