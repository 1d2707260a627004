// Sizes, scales and interpolation tables of Resize, per axis.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/table/attributes.h"

namespace pumice {

struct ResizeAxis {
  int64_t x_size = 0, size = 0;
  double scale = 1;
  double scale_num = 1, scale_den = 1;  // exact quotient: scale / 1, or size / x_size
  double roi_start = 0, roi_end = 1;    // fractions of the axis, for tf_crop_and_resize
  bool resized = false;                 // false: the axis is copied unchanged
};

// One entry per axis of `shape`. Either `scales` or `sizes` is empty. Throws GraphError naming `node` if they are invalid.
std::vector<ResizeAxis> compute_resize_axes(std::string_view node, const Attributes& attributes, const Shape& shape,
                                            const std::vector<double>& roi, const std::vector<double>& scales,
                                            const std::vector<int64_t>& sizes);

// Interpolation table of a resized axis: `taps` indices into x and weights per output index. If the first index is -1, the output element
// is outside x.
struct ResizeTable {
  size_t taps = 1;
  std::vector<int32_t> indices;
  std::vector<float> weights;
};
ResizeTable make_resize_table(const ResizeAxis& axis, const Attributes& attributes);

}  // namespace pumice
