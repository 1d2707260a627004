// Flash attention, softmax(scale * q k^T + mask) v in one pass over the keys. Lowers ONNX Attention and attention subgraphs found by
// fusion.
#pragma once

#include <string>
#include <vector>

#include "operators/attention/attention_params.h"

namespace pumice {

// Views a strided tensor in axis order `perm` (empty: unchanged), with leading axes of size 1 up to rank 4. Copies the tensor if the
// elements of its rows are not contiguous.
HeadTensor view_heads(LowerContext& node, const TensorDesc& desc, const Operand& operand, const std::vector<int64_t>& perm = {});

// Views [batch, seq, heads * size] as [batch, heads, seq, size]; a tensor of rank 4 is unchanged.
TensorDesc split_into_heads(const TensorDesc& desc, int64_t heads);
// Sets the push constants name_batch, name_head and name_row.
void set_strides(StepBuilder& step, const std::string& name, const HeadTensor& heads);

// Copies a KV cache from input `from` to output `to`. Does nothing if the output aliases the input.
void add_cache_copy(LowerContext& node, size_t from, size_t to);

// The processing stage of the scores that an attention node returns as a second output (qk_matmul_output).
enum class ScoreStage : uint8_t { raw, softcapped, masked, probabilities };

// Whether the attention kernel reads int8 keys and values directly. It does so only for few queries.
bool reads_int8_kv(const LowerContext& node, const AttentionParams& attention);

// Adds the steps that compute the attention output `attention.y`.
void add_attention(LowerContext& node, const AttentionParams& attention);
// Adds the steps that compute y and write the scores, [batch, heads, queries, keys], to `scores`.
void add_attention(LowerContext& node, const AttentionParams& attention, ScoreStage stage, const Operand& scores);

}  // namespace pumice
