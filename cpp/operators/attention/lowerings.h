// Lowerings and shape rules of the attention operators.
#pragma once

#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

void lower_attention(LowerContext& node);
void lower_fused_attention(LowerContext& node);
void lower_rotary_embedding(LowerContext& node);
void lower_rotary_kv_cache(LowerContext& node);
void infer_rotary_kv_cache_shape(ShapeContext& node);

}  // namespace pumice
