// The geometry of Resize, for every axis: resolved once, for the shape rule and the lowering alike.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor_desc.h"
#include "operators/row/attributes.h"

namespace pumice {

struct ResizeAxis {
  int64_t x_size = 0, size = 0;
  double scale = 1;
  double scale_num = 1, scale_den = 1;  // the scale is their exact quotient: of a given float and 1, or of two sizes
  double roi_start = 0, roi_end = 1;    // fractions of the axis's length, for tf_crop_and_resize
  bool resized = false;                 // false: the axis stays as it is
};

// One entry for each axis of `shape`. Either `scales` or `sizes` is empty. Throws GraphError naming `node`.
std::vector<ResizeAxis> resize_geometry(std::string_view node, const Attributes& attributes, const Shape& shape,
                                        const std::vector<double>& roi, const std::vector<double>& scales,
                                        const std::vector<int64_t>& sizes);

// Taps of a resized axis: for each index the same number of indices of x, and their weights; -1 comes first and is outside of x.
struct ResizeTable {
  size_t taps = 1;
  std::vector<int32_t> indices;
  std::vector<float> weights;
};
ResizeTable resize_table(const ResizeAxis& axis, const Attributes& attributes);

}  // namespace pumice
