#include "core/error.h"
#include "device/driver/vulkan.h"

namespace pumice {

std::string get_vk_result_name(VkResult result) {
  switch (result) {
#define PUMICE_RESULT(name) \
  case name:                \
    return #name
    PUMICE_RESULT(VK_SUCCESS);
    PUMICE_RESULT(VK_NOT_READY);
    PUMICE_RESULT(VK_TIMEOUT);
    PUMICE_RESULT(VK_INCOMPLETE);
    PUMICE_RESULT(VK_ERROR_OUT_OF_HOST_MEMORY);
    PUMICE_RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY);
    PUMICE_RESULT(VK_ERROR_INITIALIZATION_FAILED);
    PUMICE_RESULT(VK_ERROR_DEVICE_LOST);
    PUMICE_RESULT(VK_ERROR_MEMORY_MAP_FAILED);
    PUMICE_RESULT(VK_ERROR_LAYER_NOT_PRESENT);
    PUMICE_RESULT(VK_ERROR_EXTENSION_NOT_PRESENT);
    PUMICE_RESULT(VK_ERROR_FEATURE_NOT_PRESENT);
    PUMICE_RESULT(VK_ERROR_INCOMPATIBLE_DRIVER);
    PUMICE_RESULT(VK_ERROR_TOO_MANY_OBJECTS);
    PUMICE_RESULT(VK_ERROR_OUT_OF_POOL_MEMORY);
    PUMICE_RESULT(VK_ERROR_FRAGMENTED_POOL);
    PUMICE_RESULT(VK_ERROR_INVALID_EXTERNAL_HANDLE);
    PUMICE_RESULT(VK_ERROR_UNKNOWN);
#undef PUMICE_RESULT
    default:
      return "VkResult " + std::to_string(static_cast<int>(result));
  }
}

void check_vk_result(VkResult result, const char* call) {
  if (result == VK_SUCCESS) return;
  const std::string message = std::string(call) + " failed: " + get_vk_result_name(result);
  if (result == VK_ERROR_DEVICE_LOST) throw DeviceLostError(message + "; this context is dead, create a new Context");
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_POOL_MEMORY)
    throw OutOfMemoryError(message);
  throw DeviceError(message);
}

}  // namespace pumice
