// Valid ranges of an operator's index input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"

namespace pumice {

// Special values in IndexBounds::sizes: an axis of unknown size, an element that is not an index, and an index without an upper limit.
inline constexpr int64_t kUnknownSize = -1, kNotAnIndex = -2, kUnlimited = std::numeric_limits<int64_t>::max();

// Valid range of an input's indices. Element k of an index vector indexes an axis of sizes[k]; the pattern repeats every sizes.size()
// elements. Without sizes any value is valid. Float indices are truncated.
struct IndexBounds {
  size_t input = 0;
  std::vector<int64_t> sizes;
  bool from_end = true;  // negative indices count from the end

  bool has_limits() const { return !sizes.empty(); }
};

// Returns the bounds of a node with these attributes and input shapes. Absent inputs have empty shapes; unknown sizes are negative.
using IndexRule = IndexBounds (*)(const Attributes&, const std::vector<Shape>&);

}  // namespace pumice
