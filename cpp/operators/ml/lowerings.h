// Lowerings of classifier and hash operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_tree_ensemble(LowerContext& node);
void lower_tree_ensemble_fp64(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);
void lower_lsh_projection(LowerContext& node);

}  // namespace pumice
