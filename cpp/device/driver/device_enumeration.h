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

// Returns every Vulkan 1.2+ device with a compute queue and timeline semaphores; empty if there is no loader or driver.
DeviceList list_devices();

DeviceInfo query_device_info(VkPhysicalDevice_T* physical, int index);

}  // namespace pumice
