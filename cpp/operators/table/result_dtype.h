// Float dtype of an operator's results.
#pragma once

#include "core/dtype.h"
#include "operators/table/operator_row.h"

namespace pumice {

// Returns the float dtype of the operator's results if its inputs are `float_dtype`: float32 if float16 would easily overflow.
DType get_result_float_dtype(const OperatorRow& row, DType float_dtype);

}  // namespace pumice
