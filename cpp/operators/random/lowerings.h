// What the rows of random numbers name: their lowerings, packings and values on the host.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_random(LowerContext& node);
void lower_multinomial(LowerContext& node);

}  // namespace pumice
