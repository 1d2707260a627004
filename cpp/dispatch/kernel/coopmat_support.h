// Queries a device's cooperative matrix support.
#pragma once

#include <array>
#include <string_view>

#include "core/dtype.h"
#include "device/driver/device_info.h"

namespace pumice {

// Features that all cooperative matrix kernels need.
inline constexpr std::array<std::string_view, 4> kMatrixFeatures{"cooperativeMatrix", "vulkanMemoryModel", "subgroupSizeControl",
                                                                 "computeFullSubgroups"};

// Whether the device supports cooperative matrices of shape 16 x 16 x `depth` with these operand and accumulator types.
bool has_matrix_shape(const DeviceInfo& device, uint32_t depth, DType operands, DType sums);
// Like has_matrix_shape(), and kMatrixFeatures are available.
bool has_matrix_units(const DeviceInfo& device, uint32_t depth, DType operands, DType sums);

}  // namespace pumice
