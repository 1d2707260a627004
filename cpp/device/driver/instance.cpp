#include "device/driver/instance.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "device/driver/driver_memory_check.h"
#include "device/driver/validation_log.h"

namespace pumice {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

std::atomic<uint32_t> forks{0};
std::atomic<bool> loaded{false};             // whether drivers have been loaded
std::atomic<bool> breaks_after_fork{false};  // whether any loaded driver breaks after a fork

VKAPI_ATTR VkBool32 VKAPI_CALL on_validation_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                                     const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  // Older volk versions query instance functions through vkGetDeviceProcAddr, which newer layers warn about.
  if (data->pMessageIdName && std::strstr(data->pMessageIdName, "vkGetDeviceProcAddr")) return VK_FALSE;
  add_validation_message(data->pMessage ? data->pMessage : "(no text)");
  return VK_FALSE;
}

// Returns the Vulkan version of a layer, or 0 if it is not installed.
uint32_t query_layer_version(const char* name) {
  uint32_t count = 0;
  vkEnumerateInstanceLayerProperties(&count, nullptr);
  std::vector<VkLayerProperties> layers(count);
  vkEnumerateInstanceLayerProperties(&count, layers.data());
  const auto layer_properties =
      std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return std::strcmp(layer.layerName, name) == 0; });
  return layer_properties == layers.end() ? 0 : layer_properties->specVersion;
}

bool is_validation_requested() {
  const char* value = std::getenv("PUMICE_VALIDATION");
  return value && *value && std::strcmp(value, "0") != 0;
}

VkInstance create_instance(bool validation) {
  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = application.pEngineName = "pumice";
  application.apiVersion = VK_API_VERSION_1_3;
  VkDebugUtilsMessengerCreateInfoEXT messenger{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  messenger.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  messenger.pfnUserCallback = on_validation_message;
  const char* const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  // Synchronization validation detects missing barriers, which the default checks do not.
  const VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  features.enabledValidationFeatureCount = 1;
  features.pEnabledValidationFeatures = enables;
  messenger.pNext = &features;
  if (validation) {
    info.pNext = &messenger;
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.enabledExtensionCount = static_cast<uint32_t>(std::size(extensions));
    info.ppEnabledExtensionNames = extensions;
  }
  VkInstance handle = VK_NULL_HANDLE;
  const VkResult result = vkCreateInstance(&info, nullptr, &handle);
  if (result != VK_SUCCESS) check_memory_for_driver("vkCreateInstance");
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    throw DeviceError("there is a Vulkan loader but no Vulkan driver; install the GPU's driver or mesa-vulkan-drivers");
  check_vk_result(result, "vkCreateInstance");
  volkLoadInstanceOnly(handle);
  if (validation) {
    VkDebugUtilsMessengerEXT unused = VK_NULL_HANDLE;
    messenger.pNext = nullptr;
    check_vk_result(vkCreateDebugUtilsMessengerEXT(handle, &messenger, nullptr, &unused), "vkCreateDebugUtilsMessengerEXT");
  }
  return handle;
}

Instance make_instance() {
  if (volkInitialize() != VK_SUCCESS) {
    check_memory_for_driver("dlopen(\"libvulkan.so.1\")");
    throw DeviceError("there is no Vulkan loader (libvulkan.so.1); install the package libvulkan1 or the GPU's driver");
  }
  Instance result;
  result.validation = is_validation_requested();
  if (result.validation) result.layer_version = query_layer_version(kValidationLayer);
  if (result.validation && result.layer_version == 0)
    throw DeviceError("PUMICE_VALIDATION is set but VK_LAYER_KHRONOS_validation is not installed (package vulkan-validationlayers)");
  result.handle = create_instance(result.validation);
  loaded = true;
  return result;
}

bool can_run_engine(VkPhysicalDevice physical) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(physical, &properties);
  // Only llvmpipe can create a second instance in a forked child; others such as SwiftShader hang waiting for threads of the parent.
  if (std::strncmp(properties.deviceName, "llvmpipe", 8) != 0) breaks_after_fork = true;
  if (properties.apiVersion < VK_API_VERSION_1_2) return false;
  uint32_t count = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  return std::any_of(families.begin(), families.end(), [](const auto& family) { return (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0; });
}

// Ends the process without running exit handlers registered earlier. A driver's handler waits for its threads, which do not exist in a
// forked child or never finish if a kernel hangs, and frees what the parent uses.
void exit_without_handlers(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

void on_fork_in_child() {
  forks.fetch_add(1);
#ifdef __GLIBC__
  if (loaded) on_exit(exit_without_handlers, nullptr);
#endif
}

}  // namespace

void skip_driver_exit_handlers() {
#ifdef __GLIBC__
  on_exit(exit_without_handlers, nullptr);
#endif
}

void register_exit_handler(void (*handler)()) {
  std::atexit(handler);
}

uint32_t get_fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, on_fork_in_child);
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

const Instance& get_instance() {
  static std::mutex mutex;
  static auto* instances =
      new std::deque<Instance>;  // back() belongs to this process; earlier instances belong to parent processes and are never used
  static uint32_t generation = 0;
  const std::lock_guard lock(mutex);
  const bool forked = generation != get_fork_generation();
  if (!instances->empty() && forked && breaks_after_fork)
    throw StateError(
        "this process was forked from one that used Vulkan, and only Mesa's llvmpipe survives a fork: use Vulkan in only one of the two "
        "processes, or start processes with 'spawn'");
  if (instances->empty() || forked) {
    instances->push_back(make_instance());
    generation = get_fork_generation();
  }
  return instances->back();
}

std::vector<VkPhysicalDevice> list_physical_devices() {
  const VkInstance handle = get_instance().handle;
  uint32_t count = 0;
  const VkResult result = vkEnumeratePhysicalDevices(handle, &count, nullptr);
  if (result != VK_SUCCESS || count == 0) check_memory_for_driver("vkEnumeratePhysicalDevices");
  check_vk_result(result, "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> all(count);
  check_vk_result(vkEnumeratePhysicalDevices(handle, &count, all.data()), "vkEnumeratePhysicalDevices");
  std::erase_if(all, [](VkPhysicalDevice physical) { return !can_run_engine(physical); });
  return all;
}

}  // namespace pumice
