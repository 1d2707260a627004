// Elements of 2, 4 and 8 bits in kernels.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

// The macros of shaders/include/narrow.glsl for a dtype of kNarrow.
Macros narrow_macros(DType dtype);
// Lowers a Cast or CastLike from or to a narrow dtype.
void lower_narrow_cast(LowerContext& node);

}  // namespace pumice
