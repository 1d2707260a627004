// This header declares the lowerings, packings and host evaluations that rows of random numbers name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_random(LowerContext& node);
void lower_multinomial(LowerContext& node);

}  // namespace pumice
