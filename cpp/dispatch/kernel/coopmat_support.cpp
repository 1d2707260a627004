#include "dispatch/kernel/coopmat_support.h"

#include <algorithm>

namespace pumice {

bool has_matrix_shape(const DeviceInfo& device, uint32_t depth, DType operands, DType sums) {
  const std::string_view a = name(operands), c = name(sums);
  return std::ranges::any_of(device.matrices, [&](const MatrixShape& shape) {
    return shape.m == 16 && shape.n == 16 && shape.k == depth && shape.a == a && shape.b == a && shape.c == c && shape.result == c;
  });
}

bool has_matrix_units(const DeviceInfo& device, uint32_t depth, DType operands, DType sums) {
  return std::ranges::all_of(kMatrixFeatures, [&](std::string_view feature) { return device.feature(feature); }) &&
         has_matrix_shape(device, depth, operands, sums);
}

}  // namespace pumice
