// Computes the size, scale and interpolation table of each axis of a Resize.
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
  double scale_num = 1, scale_den = 1;  // scale as an exact quotient: scale / 1, or size / x_size
  double roi_start = 0, roi_end = 1;    // region of interest for tf_crop_and_resize, as fractions of the axis
  bool resized = false;                 // false: the axis is copied unchanged
};

// Returns one ResizeAxis per axis of `shape`. Either `scales` or `sizes` must be empty. Throws a GraphError that names `node` if the values
// are invalid.
std::vector<ResizeAxis> compute_resize_axes(std::string_view node, const Attributes& attributes, const Shape& shape,
                                            const std::vector<double>& roi, const std::vector<double>& scales,
                                            const std::vector<int64_t>& sizes);

// Interpolation table of a resized axis: for each output index, `taps` indices into x and their weights. A first index of -1 means that the
// output element is outside of x.
struct ResizeTable {
  size_t taps = 1;
  std::vector<int32_t> indices;
  std::vector<float> weights;
};
ResizeTable make_resize_table(const ResizeAxis& axis, const Attributes& attributes);

}  // namespace pumice
