// Splits an attention whose grid exceeds the device's limits.
#pragma once

#include <vector>

#include "operators/attention/attention_params.h"

namespace pumice {

// A slice of an attention: a range of batch items, heads or queries. Rows of the whole attention are numbered in [batch, heads, queries]
// order. The slice starts at row `first`. Its rows are contiguous, unless it contains only a part of the queries of several heads.
struct AttentionSlice {
  AttentionParams attention;
  int64_t first = 0;
};

// Splits the queries of an attention in half.
std::vector<AttentionSlice> split_queries(const AttentionParams& whole);
// Splits the batch in half, or the heads of a single batch item, or the queries of a single head. Returns no slices for a single query.
std::vector<AttentionSlice> split_batch_or_heads(const AttentionParams& whole);

}  // namespace pumice
