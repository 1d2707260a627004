// Lowerings of the random number operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_random(LowerContext& node);
void lower_multinomial(LowerContext& node);

}  // namespace pumice
