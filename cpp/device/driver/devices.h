// The system's Vulkan devices, asked of their drivers.
#pragma once

#include <string>
#include <vector>

#include "device/driver/device_info.h"

struct VkPhysicalDevice_T;

namespace pumice {

struct DeviceList {
  std::vector<DeviceInfo> visible;
  std::vector<DeviceInfo> hidden;  // by variables of the environment; their index is -1
  std::string text;                // what is hidden and why, as visibility_text() says it
};

// Every Vulkan 1.2+ device with a compute queue and timeline semaphores; empty where there is no loader or no driver.
DeviceList devices();

DeviceInfo describe(VkPhysicalDevice_T* physical, int index);

}  // namespace pumice
