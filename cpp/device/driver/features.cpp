#include "device/driver/features.h"

#include <vector>

namespace pumice {

FeatureChain::FeatureChain(uint32_t api_version, const std::set<std::string>& extensions)
    : has_13_(api_version >= VK_API_VERSION_1_3),
      has_conditional_(extensions.contains(VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME)),
      has_matrix_(extensions.contains(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)),
      has_atomic_float_(extensions.contains(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)),
      has_robustness_(extensions.contains(VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME)),
      has_bfloat16_(extensions.contains(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME)),
      has_executables_(extensions.contains(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
  void** tail = &base_.pNext;
  const auto append = [&](auto& structure, VkStructureType type) {
    structure.sType = type;
    *tail = &structure;
    tail = &structure.pNext;
  };
  base_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  append(vulkan11_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  append(vulkan12_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  if (has_13_) append(vulkan13_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES);
  if (has_conditional_) append(conditional_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT);
  if (has_matrix_) append(matrix_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
  if (has_atomic_float_) append(atomic_float_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT);
  if (has_robustness_) append(robustness_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT);
  if (has_bfloat16_) append(bfloat16_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR);
  if (has_executables_) append(executables_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
}

// Features that the engine uses or reports; all others stay disabled.
template <typename Visit>
void FeatureChain::visit_features(Visit&& visit) {
#define PUMICE_FEATURE(structure, name) visit(#name, structure.name)
  PUMICE_FEATURE(base_.features, shaderFloat64);
  PUMICE_FEATURE(base_.features, shaderInt64);
  PUMICE_FEATURE(base_.features, shaderInt16);
  PUMICE_FEATURE(base_.features, shaderImageGatherExtended);
  PUMICE_FEATURE(base_.features, shaderUniformBufferArrayDynamicIndexing);
  PUMICE_FEATURE(base_.features, shaderStorageBufferArrayDynamicIndexing);
  PUMICE_FEATURE(base_.features, shaderStorageImageExtendedFormats);
  PUMICE_FEATURE(base_.features, shaderStorageImageReadWithoutFormat);
  PUMICE_FEATURE(base_.features, shaderStorageImageWriteWithoutFormat);
  PUMICE_FEATURE(vulkan11_, storageBuffer16BitAccess);
  PUMICE_FEATURE(vulkan11_, uniformAndStorageBuffer16BitAccess);
  PUMICE_FEATURE(vulkan11_, storagePushConstant16);
  PUMICE_FEATURE(vulkan11_, variablePointersStorageBuffer);
  PUMICE_FEATURE(vulkan12_, storageBuffer8BitAccess);
  PUMICE_FEATURE(vulkan12_, uniformAndStorageBuffer8BitAccess);
  PUMICE_FEATURE(vulkan12_, storagePushConstant8);
  PUMICE_FEATURE(vulkan12_, shaderFloat16);
  PUMICE_FEATURE(vulkan12_, shaderInt8);
  PUMICE_FEATURE(vulkan12_, shaderBufferInt64Atomics);
  PUMICE_FEATURE(vulkan12_, shaderSharedInt64Atomics);
  PUMICE_FEATURE(vulkan12_, scalarBlockLayout);
  PUMICE_FEATURE(vulkan12_, hostQueryReset);
  PUMICE_FEATURE(vulkan12_, timelineSemaphore);
  PUMICE_FEATURE(vulkan12_, bufferDeviceAddress);
  PUMICE_FEATURE(vulkan12_, vulkanMemoryModel);
  PUMICE_FEATURE(vulkan12_, vulkanMemoryModelDeviceScope);
  PUMICE_FEATURE(vulkan12_, shaderSubgroupExtendedTypes);
  PUMICE_FEATURE(vulkan12_, subgroupBroadcastDynamicId);
  PUMICE_FEATURE(vulkan13_, subgroupSizeControl);
  PUMICE_FEATURE(vulkan13_, computeFullSubgroups);
  PUMICE_FEATURE(vulkan13_, synchronization2);
  PUMICE_FEATURE(vulkan13_, maintenance4);
  PUMICE_FEATURE(vulkan13_, shaderIntegerDotProduct);
  PUMICE_FEATURE(conditional_, conditionalRendering);
  PUMICE_FEATURE(matrix_, cooperativeMatrix);
  PUMICE_FEATURE(atomic_float_, shaderBufferFloat32Atomics);
  PUMICE_FEATURE(atomic_float_, shaderBufferFloat32AtomicAdd);
  PUMICE_FEATURE(atomic_float_, shaderSharedFloat32Atomics);
  PUMICE_FEATURE(atomic_float_, shaderSharedFloat32AtomicAdd);
  PUMICE_FEATURE(robustness_, pipelineRobustness);
  PUMICE_FEATURE(bfloat16_, shaderBFloat16Type);
  PUMICE_FEATURE(bfloat16_, shaderBFloat16CooperativeMatrix);
  PUMICE_FEATURE(executables_, pipelineExecutableInfo);
#undef PUMICE_FEATURE
}

std::map<std::string, bool> FeatureChain::values() const {
  std::map<std::string, bool> result;
  const_cast<FeatureChain*>(this)->visit_features([&](const char* name, VkBool32 value) { result[name] = value == VK_TRUE; });
  return result;
}

void FeatureChain::disable_unused(const std::set<std::string>& masked) {
  std::vector<std::pair<VkBool32*, VkBool32>> values;
  visit_features([&](const char* name, VkBool32& value) { values.emplace_back(&value, value && !masked.contains(name)); });
  const auto clear = [](auto& structure) {
    const auto type = structure.sType;
    const auto next = structure.pNext;
    structure = {};
    structure.sType = type;
    structure.pNext = next;
  };
  clear(base_), clear(vulkan11_), clear(vulkan12_), clear(vulkan13_), clear(conditional_), clear(matrix_), clear(atomic_float_);
  clear(robustness_), clear(bfloat16_), clear(executables_);
  for (auto [value, enabled] : values) *value = enabled;
}

std::set<std::string> list_device_extensions(VkPhysicalDevice physical, std::map<std::string, uint32_t>* versions) {
  uint32_t count = 0;
  check_vk_result(vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr), "vkEnumerateDeviceExtensionProperties");
  std::vector<VkExtensionProperties> properties(count);
  check_vk_result(vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, properties.data()),
                  "vkEnumerateDeviceExtensionProperties");
  std::set<std::string> names;
  for (const auto& extension : properties) {
    names.insert(extension.extensionName);
    if (versions) (*versions)[extension.extensionName] = extension.specVersion;
  }
  return names;
}

}  // namespace pumice
