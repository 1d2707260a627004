// What the rows of classifiers name: their lowerings, packings and values on the host.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_trees(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);

}  // namespace pumice
