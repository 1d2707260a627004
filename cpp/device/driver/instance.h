// The process's Vulkan instance, for .cpp files of the device layer only.
#pragma once

#include <cstdint>
#include <vector>

#include "device/driver/vulkan.h"

namespace pumice {

// Created once per process (again in a forked child). Never destroyed, because some drivers do not support it.
struct Instance {
  VkInstance handle = VK_NULL_HANDLE;
  bool validation = false;
  uint32_t layer_version = 0;  // Vulkan version of the validation layer
};

// Returns the instance of this process. Throws DeviceError if there is no loader or driver, or if validation is requested
// (PUMICE_VALIDATION=1) but the layer is not installed. Throws StateError in a forked child if the parent loaded any driver but llvmpipe.
const Instance& get_instance();

// Returns the physical devices that can run the engine, in the loader's order.
std::vector<VkPhysicalDevice> list_physical_devices();

// Makes process exit skip the exit handlers registered before this call: the driver's handlers wait for work that never finishes.
void skip_driver_exit_handlers();
// Registers a handler that runs at process exit, before the handlers registered earlier.
void register_exit_handler(void (*handler)());

// Number of forks so far. An object of another generation belongs to a parent process.
uint32_t get_fork_generation();

}  // namespace pumice
