#include "operators/attention/attention_slices.h"

#include <algorithm>

#include "core/rounding.h"

namespace pumice {
namespace {

enum HeadTensorAxis : size_t { kBatchAxis, kHeadAxis, kQueryAxis };

void slice_axis(HeadTensor& heads, HeadTensorAxis axis, int64_t first, int64_t count) {
  heads.first += first * heads.strides[axis];
  heads.sizes[axis] = count;
}

void offset_mask(std::optional<AttentionMask>& mask, HeadTensorAxis axis, int64_t first) {
  if (mask) mask->first += first * mask->strides[axis];
}

AttentionSlice slice_batch(const AttentionParams& whole, int64_t first, int64_t count) {
  AttentionSlice slice{whole, first * whole.q.heads() * whole.q.rows()};
  AttentionParams& a = slice.attention;
  for (HeadTensor* heads : {&a.q, &a.k, &a.v, &a.y}) slice_axis(*heads, kBatchAxis, first, count);
  offset_mask(a.mask, kBatchAxis, first);
  a.first_kv_length += first;
  return slice;
}

// `heads_per_kv`: number of query heads per KV head (GQA).
AttentionSlice slice_heads(const AttentionParams& whole, int64_t first, int64_t count, int64_t heads_per_kv) {
  AttentionSlice slice{whole, first * whole.q.rows()};
  AttentionParams& a = slice.attention;
  for (HeadTensor* heads : {&a.q, &a.y}) slice_axis(*heads, kHeadAxis, first, count);
  for (HeadTensor* heads : {&a.k, &a.v}) slice_axis(*heads, kHeadAxis, first / heads_per_kv, ceil_div(count, heads_per_kv));
  offset_mask(a.mask, kHeadAxis, first);
  return slice;
}

AttentionSlice slice_queries(const AttentionParams& whole, int64_t first, int64_t count) {
  AttentionSlice slice{whole, first};
  AttentionParams& a = slice.attention;
  for (HeadTensor* heads : {&a.q, &a.y}) slice_axis(*heads, kQueryAxis, first, count);
  offset_mask(a.mask, kQueryAxis, first);
  // The position of a query is its index or, with kv_len, its distance from the last query.
  const int64_t position_shift = a.kv_lengths ? first + count - whole.q.rows() : first;
  a.first += position_shift, a.last += position_shift;
  return slice;
}

// Splits the range 0 .. count - 1 in half. The size of the first half is a multiple of `step`.
template <typename MakeSlice>
std::vector<AttentionSlice> split_in_half(int64_t count, int64_t step, const MakeSlice& make_slice) {
  const int64_t half = round_up(ceil_div(count, 2), step);
  return {make_slice(0, half), make_slice(half, count - half)};
}

}  // namespace

std::vector<AttentionSlice> split_queries(const AttentionParams& whole) {
  if (whole.q.rows() < 2) return {};
  return split_in_half(whole.q.rows(), 1, [&](int64_t first, int64_t count) { return slice_queries(whole, first, count); });
}

std::vector<AttentionSlice> split_batch_or_heads(const AttentionParams& whole) {
  if (whole.q.batch() > 1)
    return split_in_half(whole.q.batch(), 1, [&](int64_t first, int64_t count) { return slice_batch(whole, first, count); });
  const int64_t heads = whole.q.heads(), heads_per_kv = heads / whole.k.heads();
  if (heads == 1) return split_queries(whole);
  return split_in_half(heads, whole.k.heads() > 1 ? heads_per_kv : 1,
                       [&](int64_t first, int64_t count) { return slice_heads(whole, first, count, heads_per_kv); });
}

}  // namespace pumice
