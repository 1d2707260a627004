// Vulkan features by name, for .cpp files of the device layer only. Querying, masking and enabling use the same list.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "device/driver/vulkan.h"

namespace pumice {

// The pNext chain of known feature structs; a struct is included only if the device supports its extension or version.
class FeatureChain {
 public:
  FeatureChain(uint32_t api_version, const std::set<std::string>& extensions);
  FeatureChain(const FeatureChain&) = delete;
  VkPhysicalDeviceFeatures2* head() { return &base_; }
  std::map<std::string, bool> values() const;
  // Disables features that the engine does not use, and the features in `masked`.
  void disable_unused(const std::set<std::string>& masked);

 private:
  template <typename Visit>
  void visit_features(Visit&& visit);

  bool has_13_ = false, has_conditional_ = false, has_matrix_ = false, has_atomic_float_ = false, has_robustness_ = false,
       has_bfloat16_ = false, has_executables_ = false;
  VkPhysicalDeviceFeatures2 base_{};
  VkPhysicalDeviceVulkan11Features vulkan11_{};
  VkPhysicalDeviceVulkan12Features vulkan12_{};
  VkPhysicalDeviceVulkan13Features vulkan13_{};
  VkPhysicalDeviceConditionalRenderingFeaturesEXT conditional_{};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix_{};
  VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic_float_{};
  VkPhysicalDevicePipelineRobustnessFeaturesEXT robustness_{};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16_{};
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables_{};
};

std::set<std::string> list_device_extensions(VkPhysicalDevice physical, std::map<std::string, uint32_t>* versions = nullptr);

}  // namespace pumice
