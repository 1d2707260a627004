// Splits an attention whose grid exceeds the device's limits.
#pragma once

#include <vector>

#include "operators/attention/attention_params.h"

namespace pumice {

// A slice of an attention: some batch items, heads or queries. Its rows are contiguous in the dense [batch, heads, queries] of the whole
// attention, starting at row `first`, unless it has only some of the queries of several heads.
struct AttentionSlice {
  AttentionParams attention;
  int64_t first = 0;
};

// Splits the queries of an attention in half.
std::vector<AttentionSlice> split_queries(const AttentionParams& whole);
// Splits the batch in half, or the heads if there is one batch item, or the queries if there is one head. Empty for a single query.
std::vector<AttentionSlice> split_batch_or_heads(const AttentionParams& whole);

}  // namespace pumice
