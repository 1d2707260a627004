#include "device/pipeline_cache.h"

#include <string>
#include <vector>

#include "core/files/cache_file.h"
#include "device/driver/driver_memory_check.h"

namespace pumice {
namespace {

constexpr const char* kKind = "pipelines";
constexpr size_t kHeaderBytes = 32;  // lavapipe returns only the header, since it has its own disk cache

std::string make_cache_entry_name(const DeviceInfo& info) {
  return info.uuid + "-" + info.driver_uuid + "-" + std::to_string(info.driver_version);
}

}  // namespace

VkPipelineCache load_pipeline_cache(DeviceTable& vk, const DeviceInfo& info) {
  const auto data = get_cache_directory() ? read_cache_entry(kKind, make_cache_entry_name(info)) : std::nullopt;
  VkPipelineCacheCreateInfo create{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  if (data) {
    create.initialDataSize = data->size();
    create.pInitialData = data->data();
  }
  VkPipelineCache cache = VK_NULL_HANDLE;
  const VkResult result = vk.vkCreatePipelineCache(vk.device, &create, nullptr, &cache);
  if (result == VK_ERROR_UNKNOWN) check_memory_for_driver("vkCreatePipelineCache");  // NVIDIA's driver returns this if memory is low
  check_vk_result(result, "vkCreatePipelineCache");
  return cache;
}

void save_pipeline_cache(DeviceTable& vk, const DeviceInfo& info) noexcept {
  try {
    size_t bytes = 0;
    if (!get_cache_directory() || vk.vkGetPipelineCacheData(vk.device, vk.pipeline_cache, &bytes, nullptr) != VK_SUCCESS ||
        bytes <= kHeaderBytes)
      return;
    std::vector<std::byte> data(bytes);
    if (vk.vkGetPipelineCacheData(vk.device, vk.pipeline_cache, &bytes, data.data()) != VK_SUCCESS) return;
    data.resize(bytes);
    write_cache_entry(kKind, make_cache_entry_name(info), data);
  } catch (...) {
  }
}

}  // namespace pumice
