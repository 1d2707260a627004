// Lowerings of classifier and hash operators.
#pragma once

#include "operators/table/lowering.h"

namespace pumice {

void lower_trees(LowerContext& node);
void lower_trees_of_doubles(LowerContext& node);
void lower_pairwise_coupling(LowerContext& node);
void lower_hash_projection(LowerContext& node);

}  // namespace pumice
