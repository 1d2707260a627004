// Operators on int8 KV caches: pumice::QuantizedCaches, pumice::QuantizedAttention and pumice::JoinedRows. JoinedRows also accepts float
// caches.
#pragma once

#include "operators/attention/attention_params.h"
#include "operators/table/lowering.h"
#include "operators/table/operator_row.h"

namespace pumice {

// Checks that input `cache` is int8 [batch, heads, capacity, size] with a size divisible by 4, and that its scales are [batch, heads,
// capacity].
void check_int8_cache(const ShapeContext& node, size_t cache);
void check_scales(const ShapeContext& node, size_t cache, size_t scales);
// Returns the int8 keys or values in input `i`, copied to a 16-byte boundary if needed.
HeadTensor get_aligned_int8_cache(LowerContext& node, size_t i);

void infer_quantized_kv_cache_shape(ShapeContext& node);
void lower_quantized_kv_cache(LowerContext& node);
void infer_quantized_attention_shape(ShapeContext& node);
void lower_quantized_attention(LowerContext& node);
void infer_left_padded_cache_shape(ShapeContext& node);
void lower_left_padded_cache(LowerContext& node);

}  // namespace pumice
