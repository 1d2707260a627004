// The driver's pipeline cache data on disk, for .cpp files of the device layer only.
#pragma once

#include "device/driver/device_info.h"
#include "device/driver/vulkan.h"

namespace pumice {

// Creates a pipeline cache, initialised from disk if there is an entry for this device and driver. Ignores corrupt entries and entries of
// other devices or drivers.
VkPipelineCache load_pipeline_cache(DeviceTable& vk, const DeviceInfo& info);

// Writes the cache data by atomic rename, unless the driver returns only a header. Never throws: the cache is optional.
void save_pipeline_cache(DeviceTable& vk, const DeviceInfo& info) noexcept;

}  // namespace pumice
