// Attention whose keys and values lie in caches of int8: the rows "pumice::QuantizedCaches" and "pumice::QuantizedAttention".
#pragma once

#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

namespace pumice {

void shape_of_quantized_caches(ShapeContext& node);
void lower_quantized_caches(LowerContext& node);
void shape_of_quantized_attention(ShapeContext& node);
void lower_quantized_attention(LowerContext& node);

}  // namespace pumice
