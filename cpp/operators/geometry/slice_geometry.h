// The parts that Slice and Split take from an axis: resolved once, for the shape rule, the host evaluation and the lowering alike.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"

namespace pumice {

struct SliceAxis {
  int64_t start = 0, step = 1, length = 0;
};

// One entry for each axis of `shape`. `axes` and `steps` may be empty: the first axes, steps of 1. Bounds count from the end where
// negative and are clamped. Throws GraphError naming `node` for a step of 0, an unknown or repeated axis and lists that do not match.
std::vector<SliceAxis> slice_geometry(std::string_view node, const Shape& shape, const std::vector<int64_t>& starts,
                                      const std::vector<int64_t>& ends, std::vector<int64_t> axes, std::vector<int64_t> steps);

// The sizes of a Split that is not told them: the last ones are smaller where they do not divide the axis.
std::vector<int64_t> equal_parts(int64_t size, size_t count);

}  // namespace pumice
