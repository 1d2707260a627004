// The process's Vulkan instance, for the device layer's .cpp files only.
#pragma once

#include <cstdint>
#include <vector>

#include "device/driver/vulkan.h"

namespace pumice {

// The process's instance. It is loaded once per process (again in a forked child) and never destroyed: drivers do not survive it well.
struct Instance {
  VkInstance handle = VK_NULL_HANDLE;
  bool validation = false;
  uint32_t layer_version = 0;  // the Vulkan version that the validation layer knows
};

// The instance of this process. Throws DeviceError: no loader, no driver, validation asked for (PUMICE_VALIDATION=1) but the layer is not
// installed. Throws StateError in a forked child whose parent saw another driver than llvmpipe.
const Instance& instance();

// Physical devices that can run the engine, in the loader's order.
std::vector<VkPhysicalDevice> physical_devices();

// The process ends, from its exit on, without the exit handlers that were there before this call: a driver waits in its own for work that
// does not end.
void leave_at_exit();
// Calls `handler` at the process's exit, before the exit handlers that were there before this call.
void at_exit(void (*handler)());

// Counts forks: an object made in another generation belongs to the parent process.
uint32_t fork_generation();

}  // namespace pumice
