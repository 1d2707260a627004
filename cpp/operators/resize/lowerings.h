// Lowerings of resize operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_resize(LowerContext& node);
void lower_grid_sample(LowerContext& node);

}  // namespace pumice
