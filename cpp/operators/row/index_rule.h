// What a row says of the integers in its input of indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"

namespace pumice {

// The integers of an input name elements of axes: those at k, k + sizes.size(), .. of an axis of sizes[k]. A size below 0 is not known
// yet; without sizes any integer will do.
struct IndexBounds {
  size_t input = 0;
  std::vector<int64_t> sizes;
  bool from_end = true;  // negative ones count from the end

  bool any() const { return !sizes.empty(); }
};

// By row: the bounds of a node of these attributes whose inputs have these shapes (those that are absent are empty), where sizes below 0
// are not known.
using IndexRule = IndexBounds (*)(const Attributes&, const std::vector<Shape>&);

}  // namespace pumice
