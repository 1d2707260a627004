// The driver's pipeline data on disk, for the device layer's .cpp files only.
#pragma once

#include "device/driver/device_info.h"
#include "device/driver/vulkan.h"

namespace pumice {

// A pipeline cache filled from disk where there is an entry for this device and driver; a corrupt or foreign one is ignored.
VkPipelineCache load_pipeline_cache(DeviceTable& vk, const DeviceInfo& info);

// Writes the cache's data by atomic rename where the driver returns more than a header. Never throws: a cache is a convenience.
void save_pipeline_cache(DeviceTable& vk, const DeviceInfo& info) noexcept;

}  // namespace pumice
