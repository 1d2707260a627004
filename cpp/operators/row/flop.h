// Floating-point operations of a node, for profiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/row/lowering.h"

namespace pumice {

// The number of floating-point operations of a node: what its row's `flop` counts, a multiplication and an addition for each term of each
// result of a product or a convolution. For a row that has none of its own it is one operation for each element that a map makes, and that
// a reduction, a window or a scan reads. Nodes that only move elements have 0.
uint64_t node_flop(const LowerContext& node);

// Functions that several rows give as their `flop`.

// Products of the rows of input 0, the columns of it where the attribute "transA" is set, with columns of a matrix.
uint64_t product_flop(const LowerContext& node);
// Two products of attention whose queries are input 0: with so many keys, and with as many values.
uint64_t attention_flop(const LowerContext& node, int64_t keys);

// A convolution with input `kFilters`: each is used at every place of the result, or of the image where it is `transposed`.
template <size_t kFilters = 1, bool transposed = false>
uint64_t convolution_flop(const LowerContext& node) {
  const TensorDesc &filters = node.input(kFilters), &places = transposed ? node.input(0) : node.output(0);
  const int64_t first = std::max<int64_t>(filters.shape.front(), 1);
  return 2 * static_cast<uint64_t>(places.elements()) * static_cast<uint64_t>(filters.elements() / first);
}

}  // namespace pumice
