// Elements of 2, 4 and 8 bits in kernels.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

// What shaders/include/narrow.glsl is told of a dtype of kNarrow.
Macros narrow_macros(DType dtype);
// A Cast or CastLike from or to one.
void lower_narrow_cast(LowerContext& node);

}  // namespace pumice
