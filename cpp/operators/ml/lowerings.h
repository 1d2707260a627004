// This header declares the lowerings, packings and host evaluations that rows of classifiers name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_trees(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);

}  // namespace pumice
