#include "operators/layout.h"

#include <algorithm>
#include <array>

#include "operators/families.h"

namespace pumice {

bool takes_any_layout(const OperatorRow& row) {
  static constexpr std::array kStrided = {
      &lower_conv,       &lower_conv_transpose, &lower_pool,           &lower_global_pool, &lower_instance_norm,
      &lower_batch_norm, &lower_concat,         &lower_split,          &lower_pad,         &lower_slice,
      &lower_transpose,  &lower_depth_to_space, &lower_space_to_depth, &lower_map,         &lower_cast};
  return std::find(kStrided.begin(), kStrided.end(), row.lower) != kStrided.end();
}

bool suits_channels_last(DType dtype, const Shape& shape) {
  return is_working_float(dtype) && shape.size() == 4 && shape[1] % 4 == 0;
}

Strides channels_last_strides(const Shape& shape) {
  return layout_strides(shape, "NHWC");
}

}  // namespace pumice
