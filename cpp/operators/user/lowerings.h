// Shape rule and lowering of the operator for user kernels.
#pragma once

#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

void infer_user_kernel_shape(ShapeContext& node);
void lower_user_kernel(LowerContext& node);

}  // namespace pumice
