// This header declares the lowerings, packings and host evaluations that rows of resizing name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_resize(LowerContext& node);
void lower_grid_sample(LowerContext& node);

}  // namespace pumice
