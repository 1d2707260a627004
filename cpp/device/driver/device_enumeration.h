// Enumerates the system's Vulkan devices.
#pragma once

#include <string>
#include <vector>

#include "device/driver/device_info.h"

struct VkPhysicalDevice_T;

namespace pumice {

struct DeviceList {
  std::vector<DeviceInfo> visible;
  std::vector<DeviceInfo> hidden;  // hidden by environment variables; index is -1
  std::string text;                // describe_visibility(): which devices are hidden, and why
};

// Returns every Vulkan 1.2+ device with a compute queue and timeline semaphores; empty if there is no loader or driver. Throws like
// query_device_info().
DeviceList list_devices();

// Returns the device as PUMICE_LIMITS and PUMICE_WITHOUT reduce it. Throws for variables that do not fit the device: see EnvironmentMask,
// mask_limits() and check_masked_features().
DeviceInfo query_device_info(VkPhysicalDevice_T* physical, int index);

}  // namespace pumice
