// The functions that rows of classifiers name.
#pragma once

#include "operators/row/lowering.h"

namespace pumice {

void lower_trees(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);

}  // namespace pumice
