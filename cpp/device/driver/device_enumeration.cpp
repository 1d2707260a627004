#include "device/driver/device_enumeration.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "device/driver/device_choice.h"
#include "device/driver/environment_mask.h"
#include "device/driver/features.h"
#include "device/driver/instance.h"

namespace pumice {
namespace {

std::string to_hex(const uint8_t* bytes, size_t count) {
  std::string text;
  char two[3];
  for (size_t i = 0; i < count; ++i) {
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    text += two;
  }
  return text;
}

DeviceKind to_device_kind(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return DeviceKind::discrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return DeviceKind::integrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return DeviceKind::virtual_;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return DeviceKind::software;
    default:
      return DeviceKind::other;
  }
}

void set_limit(std::map<std::string, uint64_t>& limits, const char* name, uint64_t value) {
  limits[name] = value;
}
template <typename T, size_t N>
void set_limit(std::map<std::string, uint64_t>& limits, const char* name, const T (&values)[N]) {
  for (size_t i = 0; i < N; ++i) limits[std::string(name) + "_" + std::to_string(i)] = values[i];
}

void add_float_controls(DeviceInfo& info, const VkPhysicalDeviceVulkan12Properties& v12) {
  set_limit(info.limits, "roundingModeIndependence", v12.roundingModeIndependence);
#define PUMICE_CONTROL(name)                        \
  set_limit(info.limits, #name "16", v12.name##16); \
  set_limit(info.limits, #name "32", v12.name##32); \
  set_limit(info.limits, #name "64", v12.name##64)
  PUMICE_CONTROL(shaderDenormPreserveFloat);
  PUMICE_CONTROL(shaderDenormFlushToZeroFloat);
  PUMICE_CONTROL(shaderSignedZeroInfNanPreserveFloat);
  PUMICE_CONTROL(shaderRoundingModeRTEFloat);
  PUMICE_CONTROL(shaderRoundingModeRTZFloat);
#undef PUMICE_CONTROL
}

void add_limits(DeviceInfo& info, const VkPhysicalDeviceLimits& from, const VkPhysicalDeviceVulkan11Properties& v11,
                const VkPhysicalDeviceVulkan12Properties& v12) {
#define PUMICE_LIMIT(name) set_limit(info.limits, #name, from.name)
  PUMICE_LIMIT(maxStorageBufferRange);
  PUMICE_LIMIT(maxPushConstantsSize);
  PUMICE_LIMIT(maxMemoryAllocationCount);
  PUMICE_LIMIT(maxBoundDescriptorSets);
  PUMICE_LIMIT(maxPerStageDescriptorStorageBuffers);
  PUMICE_LIMIT(maxPerStageDescriptorUniformBuffers);
  PUMICE_LIMIT(maxPerStageDescriptorStorageImages);
  PUMICE_LIMIT(maxPerStageDescriptorSampledImages);
  PUMICE_LIMIT(maxPerStageDescriptorSamplers);
  PUMICE_LIMIT(maxPerStageResources);
  PUMICE_LIMIT(maxImageDimension1D);
  PUMICE_LIMIT(maxImageDimension2D);
  PUMICE_LIMIT(maxImageDimension3D);
  PUMICE_LIMIT(bufferImageGranularity);
  PUMICE_LIMIT(maxComputeSharedMemorySize);
  PUMICE_LIMIT(maxComputeWorkGroupCount);
  PUMICE_LIMIT(maxComputeWorkGroupInvocations);
  PUMICE_LIMIT(maxComputeWorkGroupSize);
  PUMICE_LIMIT(minStorageBufferOffsetAlignment);
  PUMICE_LIMIT(minMemoryMapAlignment);
  PUMICE_LIMIT(nonCoherentAtomSize);
#undef PUMICE_LIMIT
  set_limit(info.limits, "subgroupSize", v11.subgroupSize);
  set_limit(info.limits, "subgroupSupportedStages", v11.subgroupSupportedStages);
  set_limit(info.limits, "subgroupSupportedOperations", v11.subgroupSupportedOperations);
  set_limit(info.limits, "maxMemoryAllocationSize", v11.maxMemoryAllocationSize);
  add_float_controls(info, v12);
}

std::string get_component_type_name(VkComponentTypeKHR type) {
  static const char* const names[] = {"float16", "float32", "float64", "int8",   "int16", "int32",
                                      "int64",   "uint8",   "uint16",  "uint32", "uint64"};
  const auto index = static_cast<size_t>(type);
  if (index < std::size(names)) return names[index];
  return static_cast<int>(type) == 1000141000 ? "bfloat16" : "component" + std::to_string(index);
}

void add_coopmat_shapes(DeviceInfo& info, VkPhysicalDevice physical) {
  if (!info.feature("cooperativeMatrix")) return;
  const auto query = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      vkGetInstanceProcAddr(get_instance().handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  if (!query) return;
  uint32_t count = 0;
  check_vk_result(query(physical, &count, nullptr), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  VkCooperativeMatrixPropertiesKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  std::vector<VkCooperativeMatrixPropertiesKHR> shapes(count, empty);
  check_vk_result(query(physical, &count, shapes.data()), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  for (const auto& shape : shapes) {
    if (shape.scope != VK_SCOPE_SUBGROUP_KHR || shape.saturatingAccumulation) continue;
    info.matrices.push_back({shape.MSize, shape.NSize, shape.KSize, get_component_type_name(shape.AType),
                             get_component_type_name(shape.BType), get_component_type_name(shape.CType),
                             get_component_type_name(shape.ResultType)});
  }
}

void add_host_import_limits(DeviceInfo& info, VkPhysicalDevice physical) {
  const auto host = query_properties<VkPhysicalDeviceExternalMemoryHostPropertiesEXT>(
      physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT);
  set_limit(info.limits, "minImportedHostPointerAlignment", host.minImportedHostPointerAlignment);
}

void add_multiprocessor_count(DeviceInfo& info, VkPhysicalDevice physical) {
  const auto properties = query_properties<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
      physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
  set_limit(info.limits, "shaderSMCount", properties.shaderSMCount);
}

std::string query_pci_address(VkPhysicalDevice physical, const std::set<std::string>& extensions) {
  if (!extensions.contains(VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) return {};
  const auto pci =
      query_properties<VkPhysicalDevicePCIBusInfoPropertiesEXT>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT);
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction);
  return text;
}

uint64_t query_largest_local_heap(VkPhysicalDevice physical) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  uint64_t largest = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) largest = std::max<uint64_t>(largest, memory.memoryHeaps[i].size);
  return largest;
}

void set_identity(DeviceInfo& info, const VkPhysicalDeviceProperties& base, const VkPhysicalDeviceVulkan11Properties& v11,
                  const VkPhysicalDeviceVulkan12Properties& v12) {
  info.name = base.deviceName;
  info.kind = to_device_kind(base.deviceType);
  info.uuid = to_hex(v11.deviceUUID, VK_UUID_SIZE);
  info.driver_uuid = to_hex(v11.driverUUID, VK_UUID_SIZE);
  info.driver_id = static_cast<uint32_t>(v12.driverID);
  info.driver = v12.driverName;
  info.driver_info = v12.driverInfo;
  info.vendor_id = base.vendorID;
  info.device_id = base.deviceID;
  info.api_version = base.apiVersion;
  info.driver_version = base.driverVersion;
}

}  // namespace

DeviceInfo query_device_info(VkPhysicalDevice_T* physical, int index) {
  const EnvironmentMask mask = EnvironmentMask::from_process();
  DeviceInfo info;
  VkPhysicalDeviceVulkan11Properties v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  properties.pNext = &v11;
  v11.pNext = &v12;
  vkGetPhysicalDeviceProperties2(physical, &properties);
  VkPhysicalDeviceVulkan13Properties v13{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  if (properties.properties.apiVersion >= VK_API_VERSION_1_3) {
    VkPhysicalDeviceProperties2 newer{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    newer.pNext = &v13;
    vkGetPhysicalDeviceProperties2(physical, &newer);
    set_limit(info.limits, "maxBufferSize", v13.maxBufferSize);
    set_limit(info.limits, "maxComputeWorkgroupSubgroups", v13.maxComputeWorkgroupSubgroups);
  }
  const auto& base = properties.properties;
  auto extensions = list_device_extensions(physical, &info.extensions);
  for (const std::string& name : mask.without) extensions.erase(name), info.extensions.erase(name);
  FeatureChain chain(base.apiVersion, extensions);
  vkGetPhysicalDeviceFeatures2(physical, chain.head());
  info.index = index;
  set_identity(info, base, v11, v12);
  info.pci = query_pci_address(physical, extensions);
  info.memory_bytes = query_largest_local_heap(physical);
  info.features = chain.values();
  add_limits(info, base.limits, v11, v12);
  if (extensions.contains(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) add_host_import_limits(info, physical);
  set_limit(info.limits, "shaderSMCount", 0);  // 0: the device does not report it
  if (extensions.contains(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) add_multiprocessor_count(info, physical);
  add_property_features(info);
  check_masked_features(info, mask.without, "PUMICE_WITHOUT");
  for (const std::string& name : mask.without)
    if (const auto feature = info.features.find(name); feature != info.features.end()) feature->second = false;
  mask_limits(info, mask.limits, "PUMICE_LIMITS");
  info.restrictions = mask.describe();
  add_coopmat_shapes(info, physical);
  return info;
}

DeviceList list_devices() {
  std::vector<VkPhysicalDevice> physicals;
  try {
    physicals = list_physical_devices();
  } catch (const OutOfMemoryError&) {  // a driver may exist; see check_memory_for_driver()
    throw;
  } catch (const DeviceError&) {
    return {};
  }
  std::vector<DeviceInfo> all;
  for (size_t i = 0; i < physicals.size(); ++i) all.push_back(query_device_info(physicals[i], static_cast<int>(i)));
  const DeviceVisibility visibility = resolve_visibility(all, VisibilitySources::from_process());
  DeviceList list{{}, {}, describe_visibility(all, visibility)};
  for (const VisibleDevice& device : visibility.visible) {
    list.visible.push_back(all[device.list_index]);
    list.visible.back().index = static_cast<int>(list.visible.size()) - 1;
  }
  for (const HiddenDevice& device : visibility.hidden) {
    list.hidden.push_back(all[device.list_index]);
    list.hidden.back().index = -1;
  }
  return list;
}

}  // namespace pumice
