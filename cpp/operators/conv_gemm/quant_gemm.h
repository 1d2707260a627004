// GEMM with a constant block-quantised matrix: the operator "pumice::BlockQuantMatMul".
#pragma once

#include "operators/table/operator_table.h"

namespace pumice {

void infer_block_quant_matmul_shape(ShapeContext& node);
bool pack_block_quant_matmul(const PackContext& node, size_t input, PackedWeight& packed);
void lower_block_quant_matmul(LowerContext& node);

}  // namespace pumice
