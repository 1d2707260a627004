// GEMM with a constant block-quantised matrix: the operator "pumice::BlockQuantMatMul".
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

void shape_of_block_matmul(ShapeContext& node);
bool pack_block_matmul(const PackContext& node, size_t input, PackedWeight& packed);
void lower_block_matmul(LowerContext& node);

}  // namespace pumice
