// These functions tell which matrix units a device has.
#pragma once

#include <array>
#include <string_view>

#include "core/dtype.h"
#include "device/driver/device_info.h"

namespace pumice {

// The features that kernels on matrix units need, whatever they multiply.
inline constexpr std::array<std::string_view, 4> kMatrixFeatures{"cooperativeMatrix", "vulkanMemoryModel", "subgroupSizeControl",
                                                                 "computeFullSubgroups"};

// Whether the device lists matrices of such operands, 16 by 16 by `depth`, with such sums.
bool has_matrix_shape(const DeviceInfo& device, uint32_t depth, DType operands, DType sums);
// Whether matrix units multiply them: the features are there too.
bool has_matrix_units(const DeviceInfo& device, uint32_t depth, DType operands, DType sums);

}  // namespace pumice
