// Geometry of Resize per axis, shared by the shape rule and the lowering.
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
  double scale_num = 1, scale_den = 1;  // scale as an exact quotient: a given float over 1, or one size over the other
  double roi_start = 0, roi_end = 1;    // fractions of the axis length, for tf_crop_and_resize
  bool resized = false;                 // false: the axis is not resized
};

// One entry per axis of `shape`. Either `scales` or `sizes` is empty. Throws GraphError naming `node` if they are invalid.
std::vector<ResizeAxis> resize_geometry(std::string_view node, const Attributes& attributes, const Shape& shape,
                                        const std::vector<double>& roi, const std::vector<double>& scales,
                                        const std::vector<int64_t>& sizes);

// Interpolation taps of a resized axis: `taps` indices into x and weights per output index. Index -1 is always first and means outside x.
struct ResizeTable {
  size_t taps = 1;
  std::vector<int32_t> indices;
  std::vector<float> weights;
};
ResizeTable resize_table(const ResizeAxis& axis, const Attributes& attributes);

}  // namespace pumice
