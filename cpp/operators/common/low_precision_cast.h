// Casts from and to 2-bit, 4-bit and 8-bit elements.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

// Macros of shaders/include/low_precision.glsl for a dtype of kLowBit.
Macros make_low_precision_macros(DType dtype);
// Lowers a Cast or CastLike from or to a sub-word dtype.
void lower_low_precision_cast(LowerContext& node);

}  // namespace pumice
