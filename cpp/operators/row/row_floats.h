// The sizes of floats that rows read and make.
#pragma once

#include "core/dtype.h"
#include "operators/row/operator_row.h"

namespace pumice {

// The row's kernels read floats of either size and make floats of the dtype that they are told.
bool mixes_floats(const OperatorRow& row);
// The dtype of the floats that the row makes where all that it reads are `inside`: float32 where float16 would soon overflow.
DType float_made_of(const OperatorRow& row, DType inside);

}  // namespace pumice
