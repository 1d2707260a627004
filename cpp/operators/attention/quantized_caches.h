// Caches of int8 and what reads them: the rows "pumice::QuantizedCaches", "pumice::QuantizedAttention" and "pumice::JoinedRows", to which
// caches of floats may be given as well.
#pragma once

#include "operators/attention/attention_terms.h"
#include "operators/row/lowering.h"
#include "operators/row/operator_row.h"

namespace pumice {

// Input `cache` as [batch, heads, room, size] of int8 whose heads are of whole words, with scales [batch, heads, room].
void check_bytes(const ShapeContext& node, size_t cache);
void check_scales(const ShapeContext& node, size_t cache, size_t scales);
// Keys or values of int8 from a boundary of 16 bytes on.
Heads cache_bytes(LowerContext& node, size_t i);

void shape_of_quantized_caches(ShapeContext& node);
void lower_quantized_caches(LowerContext& node);
void shape_of_quantized_attention(ShapeContext& node);
void lower_quantized_attention(LowerContext& node);
void shape_of_joined_rows(ShapeContext& node);
void lower_joined_rows(LowerContext& node);

}  // namespace pumice
