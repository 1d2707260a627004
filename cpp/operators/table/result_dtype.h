// Float width of an operator's results.
#pragma once

#include "core/dtype.h"
#include "operators/table/operator_row.h"

namespace pumice {

// Returns the float dtype of the operator's results if its inputs are `inside`: float32 if float16 would easily overflow.
DType float_made_of(const OperatorRow& row, DType inside);

}  // namespace pumice
