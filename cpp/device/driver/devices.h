// The system's Vulkan devices, asked of their drivers.
#pragma once

#include <vector>

#include "device/driver/device_info.h"

struct VkPhysicalDevice_T;

namespace pumice {

// Every Vulkan 1.2+ device with a compute queue and timeline semaphores; empty where there is no loader or no driver.
std::vector<DeviceInfo> devices();

DeviceInfo describe(VkPhysicalDevice_T* physical, int index);

}  // namespace pumice
