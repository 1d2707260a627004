#include "operators/attention/attention_slices.h"

#include <algorithm>

#include "core/rounding.h"

namespace pumice {
namespace {

enum Axis : size_t { kImages, kHeads, kRows };

void keep(Heads& heads, Axis axis, int64_t first, int64_t count) {
  heads.first += first * heads.strides[axis];
  heads.sizes[axis] = count;
}

void skip(std::optional<AttentionMask>& mask, Axis axis, int64_t first) {
  if (mask) mask->first += first * mask->strides[axis];
}

AttentionPart images_of(const Attention& whole, int64_t first, int64_t count) {
  AttentionPart part{whole, first * whole.q.heads() * whole.q.rows()};
  Attention& a = part.attention;
  for (Heads* heads : {&a.q, &a.k, &a.v, &a.y}) keep(*heads, kImages, first, count);
  skip(a.mask, kImages, first);
  a.first_count += first;
  return part;
}

// `shared`: number of query heads per KV head (GQA).
AttentionPart heads_of(const Attention& whole, int64_t first, int64_t count, int64_t shared) {
  AttentionPart part{whole, first * whole.q.rows()};
  Attention& a = part.attention;
  for (Heads* heads : {&a.q, &a.y}) keep(*heads, kHeads, first, count);
  for (Heads* heads : {&a.k, &a.v}) keep(*heads, kHeads, first / shared, ceil_div(count, shared));
  skip(a.mask, kHeads, first);
  return part;
}

AttentionPart rows_of(const Attention& whole, int64_t first, int64_t count) {
  AttentionPart part{whole, first};
  Attention& a = part.attention;
  for (Heads* heads : {&a.q, &a.y}) keep(*heads, kRows, first, count);
  skip(a.mask, kRows, first);
  // A query's position is its index or, with kv_len, its index from the end of all queries.
  const int64_t moved = a.counts ? first + count - whole.q.rows() : first;
  a.first += moved, a.last += moved;
  return part;
}

// Splits `count` in half; the first half is a multiple of `step`.
template <typename Make>
std::vector<AttentionPart> halves(int64_t count, int64_t step, const Make& make) {
  const int64_t half = round_up(ceil_div(count, 2), step);
  return {make(0, half), make(half, count - half)};
}

}  // namespace

std::vector<AttentionPart> row_parts(const Attention& whole) {
  if (whole.q.rows() < 2) return {};
  return halves(whole.q.rows(), 1, [&](int64_t first, int64_t count) { return rows_of(whole, first, count); });
}

std::vector<AttentionPart> dense_parts(const Attention& whole) {
  if (whole.q.batch() > 1) return halves(whole.q.batch(), 1, [&](int64_t first, int64_t count) { return images_of(whole, first, count); });
  const int64_t heads = whole.q.heads(), shared = heads / whole.k.heads();
  if (heads == 1) return row_parts(whole);
  return halves(heads, whole.k.heads() > 1 ? shared : 1,
                [&](int64_t first, int64_t count) { return heads_of(whole, first, count, shared); });
}

}  // namespace pumice
