// Reduces all devices of the process by PUMICE_LIMITS and PUMICE_WITHOUT, to test the engine on less capable devices.
#pragma once

#include <set>
#include <string>

#include "device/driver/device_info.h"
#include "device/driver/limit_mask.h"

namespace pumice {

struct EnvironmentMask {
  LimitMask limits;               // PUMICE_LIMITS, e.g. "maxComputeSharedMemorySize=16384,maxComputeWorkGroupInvocations=256"
  std::set<std::string> without;  // PUMICE_WITHOUT, e.g. "shaderFloat16,VK_KHR_cooperative_matrix"

  // Reads both variables. Throws DeviceError for text of another form, and for a name that occurs twice.
  static EnvironmentMask from_process();
  // Both masks as text, for cache keys and reports; empty if neither variable is set.
  std::string describe() const;
};

// Throws UnsupportedError for a name that is neither a feature of `info` nor an extension, and for timelineSemaphore, which the engine
// needs. `source`: where the names are from, for the error.
void check_masked_features(const DeviceInfo& info, const std::set<std::string>& masked, const std::string& source);

}  // namespace pumice
