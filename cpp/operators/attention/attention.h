// softmax(scale q k^T + mask) v in one walk over the keys, for the rows Attention and what the passes of a graph make of its primitives.
#pragma once

#include <string>
#include <vector>

#include "operators/attention/attention_terms.h"

namespace pumice {

// A tensor of any strides seen in the order of axes `perm` (empty: its own), with leading axes of 1 up to four.
Heads heads_of(LowerContext& node, const TensorDesc& desc, const Operand& operand, const std::vector<int64_t>& perm = {});

// [batch, rows, heads * size] as [batch, heads, rows, size]; a tensor of four axes as it is.
TensorDesc by_heads(const TensorDesc& desc, int64_t heads);
// Push constants name_batch, name_head and name_row.
void set_strides(StepBuilder& step, const std::string& name, const Heads& heads);

// Copies a cache, input `from`, to output `to`. That is left out where the output is the memory of the input.
void add_cache_copy(LowerContext& node, size_t from, size_t to);

// The scores that are wanted beside the result.
enum class Scores : uint8_t { products, capped, masked, shares };

// Whether an attention over keys and values of int8 reads them as they are: one of few rows.
bool reads_bytes(const LowerContext& node, const Attention& attention);

// Adds the steps that make y.
void add_attention(LowerContext& node, const Attention& attention);
// Adds the steps that make y and write the scores, [batch, heads, rows, keys], to `scores`.
void add_attention(LowerContext& node, const Attention& attention, Scores wanted, const Operand& scores);

}  // namespace pumice
