// How a device runs operators at a precision, and what it lacks for more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/driver/device_info.h"
#include "dispatch/kernel/kernel.h"

namespace pumice {

struct PrecisionSupport {
  std::string_view precision;       // "fp32", "fp16", "bf16"
  Storage storage = Storage::fp32;  // of the floats inside
  bool matrices = false;            // matrix units multiply them, 16 by 16 by 16, and sum in float32
  std::vector<std::string> lacks;   // features of the device and extensions of the compiler, where storage is packed or units are idle
};

PrecisionSupport support_of(const DeviceInfo& device, DType float_dtype);
std::vector<PrecisionSupport> precision_support(const DeviceInfo& device);

}  // namespace pumice
