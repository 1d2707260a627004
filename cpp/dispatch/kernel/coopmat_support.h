// Queries a device's cooperative matrix support.
#pragma once

#include <array>
#include <string_view>

#include "core/dtype.h"
#include "device/driver/device_info.h"

namespace pumice {

// Features that all cooperative matrix kernels need.
inline constexpr std::array<std::string_view, 4> kCoopmatFeatures{"cooperativeMatrix", "vulkanMemoryModel", "subgroupSizeControl",
                                                                  "computeFullSubgroups"};

// Whether the device supports cooperative matrices of shape 16 x 16 x `k` with these operand and accumulator types.
bool has_coopmat_shape(const DeviceInfo& device, uint32_t k, DType operands, DType accumulators);
// Like has_coopmat_shape(), but also requires all of kCoopmatFeatures.
bool supports_coopmat(const DeviceInfo& device, uint32_t k, DType operands, DType accumulators);

}  // namespace pumice
