// Index rules say which integers a row takes in its input of indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"

namespace pumice {

// These numbers stand in for the size of an axis that is not known yet, of elements that are no indices, and of integers without a limit.
inline constexpr int64_t kNotKnown = -1, kNoIndex = -2, kUnlimited = std::numeric_limits<int64_t>::max();

// The numbers of an input name elements of axes: those at k, k + sizes.size(), .. of an axis of sizes[k]. Without sizes any number will
// do. Numbers that are floats are truncated.
struct IndexBounds {
  size_t input = 0;
  std::vector<int64_t> sizes;
  bool from_end = true;  // negative ones count from the end

  bool any() const { return !sizes.empty(); }
};

// A row's rule gives the bounds of a node of these attributes whose inputs have these shapes (those that are absent are empty), where sizes
// below 0 are not known.
using IndexRule = IndexBounds (*)(const Attributes&, const std::vector<Shape>&);

}  // namespace pumice
