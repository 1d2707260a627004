// Vulkan functions, handles and result codes, for .cpp files of the device layer only.
#pragma once

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <volk.h>

#include <atomic>
#include <string>

// Declarations missing from older headers; values are from the Vulkan registry.
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_cooperative_matrix 1
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
constexpr VkStructureType VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR = static_cast<VkStructureType>(1000506000);
constexpr VkStructureType VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR = static_cast<VkStructureType>(1000506001);
enum VkComponentTypeKHR : uint32_t {
  VK_COMPONENT_TYPE_FLOAT16_KHR = 0,
  VK_COMPONENT_TYPE_FLOAT32_KHR,
  VK_COMPONENT_TYPE_FLOAT64_KHR,
  VK_COMPONENT_TYPE_SINT8_KHR,
  VK_COMPONENT_TYPE_SINT16_KHR,
  VK_COMPONENT_TYPE_SINT32_KHR,
  VK_COMPONENT_TYPE_SINT64_KHR,
  VK_COMPONENT_TYPE_UINT8_KHR,
  VK_COMPONENT_TYPE_UINT16_KHR,
  VK_COMPONENT_TYPE_UINT32_KHR,
  VK_COMPONENT_TYPE_UINT64_KHR,
};
enum VkScopeKHR : uint32_t {
  VK_SCOPE_DEVICE_KHR = 1,
  VK_SCOPE_WORKGROUP_KHR = 2,
  VK_SCOPE_SUBGROUP_KHR = 3,
  VK_SCOPE_QUEUE_FAMILY_KHR = 5
};
struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  uint32_t MSize, NSize, KSize;
  VkComponentTypeKHR AType, BType, CType, ResultType;
  VkBool32 saturatingAccumulation;
  VkScopeKHR scope;
};
struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
};
using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*,
                                                                                   VkCooperativeMatrixPropertiesKHR*);
#endif

#ifndef VK_KHR_shader_bfloat16
#define VK_KHR_shader_bfloat16 1
#define VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME "VK_KHR_shader_bfloat16"
constexpr VkStructureType VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR = static_cast<VkStructureType>(1000141000);
struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 shaderBFloat16Type, shaderBFloat16DotProduct, shaderBFloat16CooperativeMatrix;
};
#endif

#ifndef VK_EXT_pipeline_robustness
#define VK_EXT_pipeline_robustness 1
#define VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME "VK_EXT_pipeline_robustness"
constexpr VkStructureType VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT = static_cast<VkStructureType>(1000068000);
constexpr VkStructureType VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT = static_cast<VkStructureType>(1000068001);
enum VkPipelineRobustnessBufferBehaviorEXT : uint32_t {
  VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT = 0,
  VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_ROBUST_BUFFER_ACCESS_EXT = 2,
};
enum VkPipelineRobustnessImageBehaviorEXT : uint32_t { VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_DEVICE_DEFAULT_EXT = 0 };
struct VkPhysicalDevicePipelineRobustnessFeaturesEXT {
  VkStructureType sType;
  void* pNext;
  VkBool32 pipelineRobustness;
};
struct VkPipelineRobustnessCreateInfoEXT {
  VkStructureType sType;
  const void* pNext;
  VkPipelineRobustnessBufferBehaviorEXT storageBuffers, uniformBuffers, vertexInputs;
  VkPipelineRobustnessImageBehaviorEXT images;
};
#endif

namespace pumice {

// Functions and handles of a logical device. Destroys the device with the last owner (a context, or a pipeline that outlives it).
struct DeviceTable : VolkDeviceTable {
  DeviceTable() = default;
  DeviceTable(const DeviceTable&) = delete;
  ~DeviceTable();

  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkPipelineCache pipeline_cache = VK_NULL_HANDLE;
  uint32_t family = 0;
  uint32_t generation = 0;             // get_fork_generation() at creation
  std::atomic<bool> abandoned{false};  // set with ContextState::abandoned; the device is then never destroyed
  uint32_t timestamp_bits = 0;
  double timestamp_period = 1;   // nanoseconds per tick
  bool has_conditional = false;  // the conditionalRendering feature
  VkPhysicalDeviceMemoryProperties memory{};
};

enum class DescriptorKind : uint8_t;
VkDescriptorType to_descriptor_type(DescriptorKind kind);

std::string get_vk_result_name(VkResult result);

// Throws the matching engine error unless the result is VK_SUCCESS; `call` names the Vulkan function.
void check_vk_result(VkResult result, const char* call);

// Queries a properties struct in the pNext chain, e.g. of an extension.
template <typename Structure>
Structure query_properties(VkPhysicalDevice physical, VkStructureType type) {
  Structure structure{};
  structure.sType = type;
  VkPhysicalDeviceProperties2 chain{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &structure};
  vkGetPhysicalDeviceProperties2(physical, &chain);
  return structure;
}

}  // namespace pumice
