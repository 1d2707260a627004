#include "dispatch/kernel/coopmat_support.h"

#include <algorithm>

namespace pumice {

bool has_coopmat_shape(const DeviceInfo& device, uint32_t k, DType operands, DType accumulators) {
  const std::string_view a = name(operands), c = name(accumulators);
  return std::ranges::any_of(device.matrices, [&](const MatrixShape& shape) {
    return shape.m == 16 && shape.n == 16 && shape.k == k && shape.a == a && shape.b == a && shape.c == c && shape.result == c;
  });
}

bool supports_coopmat(const DeviceInfo& device, uint32_t k, DType operands, DType accumulators) {
  return std::ranges::all_of(kCoopmatFeatures, [&](std::string_view feature) { return device.feature(feature); }) &&
         has_coopmat_shape(device, k, operands, accumulators);
}

}  // namespace pumice
