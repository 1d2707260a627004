#include "operators/attention/attention_params.h"

#include <algorithm>

namespace pumice {

int64_t HeadTensor::count_spanned_elements() const {
  int64_t last = size() - 1;
  for (size_t axis = 0; axis < strides.size(); ++axis) last += std::max<int64_t>(sizes[axis] - 1, 0) * strides[axis];
  return std::max<int64_t>(last + 1, 1);
}

bool HeadTensor::has_aligned_vectors(DType dtype, int64_t width) const {
  const auto bytes = static_cast<uint64_t>(bits(dtype) / 8 * width);
  if (size() % width != 0 || misalignment % bytes != 0 || first % width != 0) return false;
  for (size_t axis = 0; axis < strides.size(); ++axis)
    if (sizes[axis] > 1 && strides[axis] % width != 0) return false;
  return true;
}

}  // namespace pumice
