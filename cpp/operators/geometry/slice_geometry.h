// Computes the ranges that Slice and Split select along an axis, for shape inference, host evaluation and lowering.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

struct SliceAxis {
  int64_t start = 0, step = 1, length = 0;
};

// Returns one SliceAxis per axis of `shape`. Empty `axes` means the first axes; empty `steps` means steps of 1. Negative starts and ends
// count from the end, and all are clamped to the axis. Throws a GraphError that names `node` for a step of 0, an unknown or repeated axis,
// or lists of different lengths.
std::vector<SliceAxis> compute_slice_axes(std::string_view node, const Shape& shape, const std::vector<int64_t>& starts,
                                          const std::vector<int64_t>& ends, std::vector<int64_t> axes, std::vector<int64_t> steps);

// Returns the output sizes of a Split without explicit sizes. The last outputs are smaller if `count` does not divide `size`.
std::vector<int64_t> compute_even_split_sizes(int64_t size, size_t count);

}  // namespace pumice
