// int8 KV caches and their readers: the operators "pumice::QuantizedCaches", "pumice::QuantizedAttention" and "pumice::JoinedRows", which
// also accept float caches.
#pragma once

#include "operators/attention/attention_params.h"
#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

// Checks that input `cache` is int8 [batch, heads, capacity, size] with a size divisible by 4, and that its scales are [batch, heads,
// capacity].
void check_int8_cache(const ShapeContext& node, size_t cache);
void check_scales(const ShapeContext& node, size_t cache, size_t scales);
// Returns int8 keys or values, which start at a 16-byte boundary.
HeadTensor get_aligned_int8_cache(LowerContext& node, size_t i);

void shape_of_quantized_kv_cache(ShapeContext& node);
void lower_quantized_kv_cache(LowerContext& node);
void shape_of_quantized_attention(ShapeContext& node);
void lower_quantized_attention(LowerContext& node);
void shape_of_left_padded_cache(ShapeContext& node);
void lower_left_padded_cache(LowerContext& node);

}  // namespace pumice
