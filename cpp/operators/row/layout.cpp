#include "operators/row/layout.h"

#include <algorithm>
#include <array>

#include "operators/row/families.h"

namespace pumice {

// Rows whose kernels have strides of images.
static bool has_image_strides(const OperatorRow& row) {
  static constexpr std::array kStrided = {
      &lower_conv,       &lower_conv_transpose, &lower_pool,           &lower_global_pool, &lower_instance_norm,
      &lower_batch_norm, &lower_concat,         &lower_split,          &lower_pad,         &lower_slice,
      &lower_transpose,  &lower_depth_to_space, &lower_space_to_depth, &lower_map,         &lower_cast};
  return std::find(kStrided.begin(), kStrided.end(), row.lower) != kStrided.end();
}

// Kernels that read and write whole rows.
static bool is_packed_alone(const OperatorRow& row) {
  static constexpr std::array kPacked = {&lower_softmax,      &lower_layer_norm,
                                         &lower_group_norm,   &lower_mean_variance_norm,
                                         &lower_lp_norm,      &lower_lrn,
                                         &lower_quantize,     &lower_global_lp_pool,
                                         &lower_range,        &lower_matmul_integer,
                                         &lower_conv_integer, &lower_qlinear_matmul,
                                         &lower_qlinear_conv, &lower_dynamic_quantize,
                                         &lower_recurrent,    &lower_determinant,
                                         &lower_max_unpool};
  return std::find(kPacked.begin(), kPacked.end(), row.lower) != kPacked.end();
}

bool takes_strides(const OperatorRow& row, size_t input) {
  if (is_packed_alone(row)) return false;
  return input == 0 || !row.pack || row.pack == &pack_matmul;  // others repack their weights, reading them row by row
}

// Kernels that read any strides and write whole rows.
static bool makes_packed(const OperatorRow& row) {
  static constexpr std::array kMade = {&lower_attention, &lower_recognised_attention, &lower_rotary_embedding, &lower_tensor_scatter};
  return std::find(kMade.begin(), kMade.end(), row.lower) != kMade.end();
}

bool makes_strides(const OperatorRow& row, size_t output) {
  return !is_packed_alone(row) && !makes_packed(row) && (output == 0 || row.lower != &lower_pool);  // its indices
}

bool takes_any_layout(const OperatorRow& row, size_t input) {
  return has_image_strides(row) && takes_strides(row, input);
}

bool makes_any_layout(const OperatorRow& row, size_t output) {
  return has_image_strides(row) && makes_strides(row, output);
}

Strides transposed_strides(const Attributes& transpose, const TensorDesc& x) {
  Strides strides;
  for (const int64_t axis : transpose.integers("perm"))
    strides.push_back(x.strides[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)]);
  if (strides.empty()) strides.assign(x.strides.rbegin(), x.strides.rend());
  return strides;
}

bool suits_channels_last(DType dtype, const Shape& shape) {
  return is_working_float(dtype) && (shape.size() == 3 || shape.size() == 4) && shape[1] % 4 == 0;
}

Strides channels_last_strides(const Shape& shape) {
  return layout_strides(shape, shape.size() == 3 ? "NWC" : "NHWC");
}

}  // namespace pumice
