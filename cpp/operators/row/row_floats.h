// The size of the floats that a row makes.
#pragma once

#include "core/dtype.h"
#include "operators/row/operator_row.h"

namespace pumice {

// The dtype of the floats that the row makes where all that it reads are `inside`: float32 where float16 would soon overflow.
DType float_made_of(const OperatorRow& row, DType inside);

}  // namespace pumice
