// Device support for each precision, and the missing features.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/driver/device_info.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

struct PrecisionSupport {
  std::string_view precision;               // "fp32", "fp16", "bf16"
  StorageType storage = StorageType::fp32;  // storage type of floats inside a program
  bool matrices = false;                    // 16x16x16 cooperative matrices with fp32 accumulation are used
  std::vector<std::string> lacks;           // missing features and extensions; if any, storage is packed or cooperative matrices are unused
};

PrecisionSupport get_precision_support(const DeviceInfo& device, DType float_dtype);
std::vector<PrecisionSupport> precision_support(const DeviceInfo& device);

}  // namespace pumice
