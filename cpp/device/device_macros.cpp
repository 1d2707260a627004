// Queries the device macros of the GLSL extension: ncnn_<name> for extensions, features, properties and limits.
#include "device/device_macros.h"

#include <algorithm>

#include "core/number_format.h"
#include "device/context_state.h"

namespace pumice {
namespace {

// Formats values as GLSL literals: integers without a suffix, except 64-bit ones, which are clamped if the device lacks 64-bit integers.
class MacroWriter {
 public:
  explicit MacroWriter(const DeviceInfo& info) : info_(info), int64_(info.feature("shaderInt64")) {}

  // A masked feature is written as 0, a masked limit as its masked value.
  void add_macro(const std::string& name, uint32_t value) {
    const auto masked = info_.features.find(name);
    add_text(name, std::to_string(masked != info_.features.end() && !masked->second ? 0 : get_masked_limit(name, value)));
  }
  void add_macro(const std::string& name, int32_t value) { add_text(name, std::to_string(value)); }
  void add_macro(const std::string& name, uint64_t value) {
    value = get_masked_limit(name, value);
    add_text(name, int64_ ? std::to_string(value) + "ull" : std::to_string(std::min<uint64_t>(value, UINT32_MAX)));
  }
  void add_macro(const std::string& name, float value) { add_text(name, format_scientific(value, 8)); }
  template <typename T, size_t N>
  void add_macro(const std::string& name, const T (&values)[N]) {
    for (size_t i = 0; i < N; ++i) add_macro(name + "_" + std::to_string(i), values[i]);
  }
  void add_text(const std::string& name, std::string value) { macros_["ncnn_" + name] = std::move(value); }

  bool has_extension(const char* extension) const { return info_.extensions.contains(extension); }
  std::map<std::string, std::string> take_macros() { return std::move(macros_); }

 private:
  uint64_t get_masked_limit(const std::string& name, uint64_t value) const {
    const auto masked = info_.limits.find(name);
    return masked == info_.limits.end() ? value : masked->second;
  }

  const DeviceInfo& info_;
  bool int64_;
  std::map<std::string, std::string> macros_;
};

#define PUMICE_PUT(from, name) writer.add_macro(#name, from.name)

void add_features(MacroWriter& writer, const VkPhysicalDeviceFeatures& features) {
  PUMICE_PUT(features, robustBufferAccess);
  PUMICE_PUT(features, fullDrawIndexUint32);
  PUMICE_PUT(features, imageCubeArray);
  PUMICE_PUT(features, independentBlend);
  PUMICE_PUT(features, geometryShader);
  PUMICE_PUT(features, tessellationShader);
  PUMICE_PUT(features, sampleRateShading);
  PUMICE_PUT(features, dualSrcBlend);
  PUMICE_PUT(features, logicOp);
  PUMICE_PUT(features, multiDrawIndirect);
  PUMICE_PUT(features, drawIndirectFirstInstance);
  PUMICE_PUT(features, depthClamp);
  PUMICE_PUT(features, depthBiasClamp);
  PUMICE_PUT(features, fillModeNonSolid);
  PUMICE_PUT(features, depthBounds);
  PUMICE_PUT(features, wideLines);
  PUMICE_PUT(features, largePoints);
  PUMICE_PUT(features, alphaToOne);
  PUMICE_PUT(features, multiViewport);
  PUMICE_PUT(features, samplerAnisotropy);
  PUMICE_PUT(features, textureCompressionETC2);
  PUMICE_PUT(features, textureCompressionASTC_LDR);
  PUMICE_PUT(features, textureCompressionBC);
  PUMICE_PUT(features, occlusionQueryPrecise);
  PUMICE_PUT(features, pipelineStatisticsQuery);
  PUMICE_PUT(features, vertexPipelineStoresAndAtomics);
  PUMICE_PUT(features, fragmentStoresAndAtomics);
  PUMICE_PUT(features, shaderTessellationAndGeometryPointSize);
  PUMICE_PUT(features, shaderImageGatherExtended);
  PUMICE_PUT(features, shaderStorageImageExtendedFormats);
  PUMICE_PUT(features, shaderStorageImageMultisample);
  PUMICE_PUT(features, shaderStorageImageReadWithoutFormat);
  PUMICE_PUT(features, shaderStorageImageWriteWithoutFormat);
  PUMICE_PUT(features, shaderUniformBufferArrayDynamicIndexing);
  PUMICE_PUT(features, shaderSampledImageArrayDynamicIndexing);
  PUMICE_PUT(features, shaderStorageBufferArrayDynamicIndexing);
  PUMICE_PUT(features, shaderStorageImageArrayDynamicIndexing);
  PUMICE_PUT(features, shaderClipDistance);
  PUMICE_PUT(features, shaderCullDistance);
  PUMICE_PUT(features, shaderFloat64);
  PUMICE_PUT(features, shaderInt64);
  PUMICE_PUT(features, shaderInt16);
  PUMICE_PUT(features, shaderResourceResidency);
  PUMICE_PUT(features, shaderResourceMinLod);
  PUMICE_PUT(features, sparseBinding);
  PUMICE_PUT(features, sparseResidencyBuffer);
  PUMICE_PUT(features, sparseResidencyImage2D);
  PUMICE_PUT(features, sparseResidencyImage3D);
  PUMICE_PUT(features, sparseResidency2Samples);
  PUMICE_PUT(features, sparseResidency4Samples);
  PUMICE_PUT(features, sparseResidency8Samples);
  PUMICE_PUT(features, sparseResidency16Samples);
  PUMICE_PUT(features, sparseResidencyAliased);
  PUMICE_PUT(features, variableMultisampleRate);
  PUMICE_PUT(features, inheritedQueries);
}

void add_limits(MacroWriter& writer, const VkPhysicalDeviceLimits& limits) {
  PUMICE_PUT(limits, maxImageDimension1D);
  PUMICE_PUT(limits, maxImageDimension2D);
  PUMICE_PUT(limits, maxImageDimension3D);
  PUMICE_PUT(limits, maxImageDimensionCube);
  PUMICE_PUT(limits, maxImageArrayLayers);
  PUMICE_PUT(limits, maxTexelBufferElements);
  PUMICE_PUT(limits, maxUniformBufferRange);
  PUMICE_PUT(limits, maxStorageBufferRange);
  PUMICE_PUT(limits, maxPushConstantsSize);
  PUMICE_PUT(limits, maxMemoryAllocationCount);
  PUMICE_PUT(limits, maxSamplerAllocationCount);
  PUMICE_PUT(limits, bufferImageGranularity);
  PUMICE_PUT(limits, sparseAddressSpaceSize);
  PUMICE_PUT(limits, maxBoundDescriptorSets);
  PUMICE_PUT(limits, maxPerStageDescriptorSamplers);
  PUMICE_PUT(limits, maxPerStageDescriptorUniformBuffers);
  PUMICE_PUT(limits, maxPerStageDescriptorStorageBuffers);
  PUMICE_PUT(limits, maxPerStageDescriptorSampledImages);
  PUMICE_PUT(limits, maxPerStageDescriptorStorageImages);
  PUMICE_PUT(limits, maxPerStageDescriptorInputAttachments);
  PUMICE_PUT(limits, maxPerStageResources);
  PUMICE_PUT(limits, maxDescriptorSetSamplers);
  PUMICE_PUT(limits, maxDescriptorSetUniformBuffers);
  PUMICE_PUT(limits, maxDescriptorSetUniformBuffersDynamic);
  PUMICE_PUT(limits, maxDescriptorSetStorageBuffers);
  PUMICE_PUT(limits, maxDescriptorSetStorageBuffersDynamic);
  PUMICE_PUT(limits, maxDescriptorSetSampledImages);
  PUMICE_PUT(limits, maxDescriptorSetStorageImages);
  PUMICE_PUT(limits, maxDescriptorSetInputAttachments);
  PUMICE_PUT(limits, maxVertexInputAttributes);
  PUMICE_PUT(limits, maxVertexInputBindings);
  PUMICE_PUT(limits, maxVertexInputAttributeOffset);
  PUMICE_PUT(limits, maxVertexInputBindingStride);
  PUMICE_PUT(limits, maxVertexOutputComponents);
  PUMICE_PUT(limits, maxTessellationGenerationLevel);
  PUMICE_PUT(limits, maxTessellationPatchSize);
  PUMICE_PUT(limits, maxTessellationControlPerVertexInputComponents);
  PUMICE_PUT(limits, maxTessellationControlPerVertexOutputComponents);
  PUMICE_PUT(limits, maxTessellationControlPerPatchOutputComponents);
  PUMICE_PUT(limits, maxTessellationControlTotalOutputComponents);
  PUMICE_PUT(limits, maxTessellationEvaluationInputComponents);
  PUMICE_PUT(limits, maxTessellationEvaluationOutputComponents);
  PUMICE_PUT(limits, maxGeometryShaderInvocations);
  PUMICE_PUT(limits, maxGeometryInputComponents);
  PUMICE_PUT(limits, maxGeometryOutputComponents);
  PUMICE_PUT(limits, maxGeometryOutputVertices);
  PUMICE_PUT(limits, maxGeometryTotalOutputComponents);
  PUMICE_PUT(limits, maxFragmentInputComponents);
  PUMICE_PUT(limits, maxFragmentOutputAttachments);
  PUMICE_PUT(limits, maxFragmentDualSrcAttachments);
  PUMICE_PUT(limits, maxFragmentCombinedOutputResources);
  PUMICE_PUT(limits, maxComputeSharedMemorySize);
  PUMICE_PUT(limits, maxComputeWorkGroupCount);
  PUMICE_PUT(limits, maxComputeWorkGroupInvocations);
  PUMICE_PUT(limits, maxComputeWorkGroupSize);
  PUMICE_PUT(limits, subPixelPrecisionBits);
  PUMICE_PUT(limits, subTexelPrecisionBits);
  PUMICE_PUT(limits, mipmapPrecisionBits);
  PUMICE_PUT(limits, maxDrawIndexedIndexValue);
  PUMICE_PUT(limits, maxDrawIndirectCount);
  PUMICE_PUT(limits, maxSamplerLodBias);
  PUMICE_PUT(limits, maxSamplerAnisotropy);
  PUMICE_PUT(limits, maxViewports);
  PUMICE_PUT(limits, maxViewportDimensions);
  PUMICE_PUT(limits, viewportBoundsRange);
  PUMICE_PUT(limits, viewportSubPixelBits);
  PUMICE_PUT(limits, minMemoryMapAlignment);
  PUMICE_PUT(limits, minTexelBufferOffsetAlignment);
  PUMICE_PUT(limits, minUniformBufferOffsetAlignment);
  PUMICE_PUT(limits, minStorageBufferOffsetAlignment);
  PUMICE_PUT(limits, minTexelOffset);
  PUMICE_PUT(limits, maxTexelOffset);
  PUMICE_PUT(limits, minTexelGatherOffset);
  PUMICE_PUT(limits, maxTexelGatherOffset);
  PUMICE_PUT(limits, minInterpolationOffset);
  PUMICE_PUT(limits, maxInterpolationOffset);
  PUMICE_PUT(limits, subPixelInterpolationOffsetBits);
  PUMICE_PUT(limits, maxFramebufferWidth);
  PUMICE_PUT(limits, maxFramebufferHeight);
  PUMICE_PUT(limits, maxFramebufferLayers);
  PUMICE_PUT(limits, framebufferColorSampleCounts);
  PUMICE_PUT(limits, framebufferDepthSampleCounts);
  PUMICE_PUT(limits, framebufferStencilSampleCounts);
  PUMICE_PUT(limits, framebufferNoAttachmentsSampleCounts);
  PUMICE_PUT(limits, maxColorAttachments);
  PUMICE_PUT(limits, sampledImageColorSampleCounts);
  PUMICE_PUT(limits, sampledImageIntegerSampleCounts);
  PUMICE_PUT(limits, sampledImageDepthSampleCounts);
  PUMICE_PUT(limits, sampledImageStencilSampleCounts);
  PUMICE_PUT(limits, storageImageSampleCounts);
  PUMICE_PUT(limits, maxSampleMaskWords);
  PUMICE_PUT(limits, timestampComputeAndGraphics);
  PUMICE_PUT(limits, timestampPeriod);
  PUMICE_PUT(limits, maxClipDistances);
  PUMICE_PUT(limits, maxCullDistances);
  PUMICE_PUT(limits, maxCombinedClipAndCullDistances);
  PUMICE_PUT(limits, discreteQueuePriorities);
  PUMICE_PUT(limits, pointSizeRange);
  PUMICE_PUT(limits, lineWidthRange);
  PUMICE_PUT(limits, pointSizeGranularity);
  PUMICE_PUT(limits, lineWidthGranularity);
  PUMICE_PUT(limits, strictLines);
  PUMICE_PUT(limits, standardSampleLocations);
  PUMICE_PUT(limits, optimalBufferCopyOffsetAlignment);
  PUMICE_PUT(limits, optimalBufferCopyRowPitchAlignment);
  PUMICE_PUT(limits, nonCoherentAtomSize);
}

void add_sparse_properties(MacroWriter& writer, const VkPhysicalDeviceSparseProperties& sparse) {
  PUMICE_PUT(sparse, residencyStandard2DBlockShape);
  PUMICE_PUT(sparse, residencyStandard2DMultisampleBlockShape);
  PUMICE_PUT(sparse, residencyStandard3DBlockShape);
  PUMICE_PUT(sparse, residencyAlignedMipSize);
  PUMICE_PUT(sparse, residencyNonResidentStrict);
}

template <typename Structure>
Structure query_features(VkPhysicalDevice physical, VkStructureType type) {
  Structure structure{};
  structure.sType = type;
  VkPhysicalDeviceFeatures2 chain{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &structure};
  vkGetPhysicalDeviceFeatures2(physical, &chain);
  return structure;
}

// Features in extension structs, which may be queried only if the device supports the extension.
void add_extension_features(MacroWriter& writer, VkPhysicalDevice physical) {
  if (writer.has_extension("VK_KHR_8bit_storage")) {
    const auto found =
        query_features<VkPhysicalDevice8BitStorageFeatures>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES);
    PUMICE_PUT(found, storageBuffer8BitAccess);
    PUMICE_PUT(found, uniformAndStorageBuffer8BitAccess);
    PUMICE_PUT(found, storagePushConstant8);
  }
  if (writer.has_extension("VK_KHR_16bit_storage")) {
    const auto found =
        query_features<VkPhysicalDevice16BitStorageFeatures>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
    PUMICE_PUT(found, storageBuffer16BitAccess);
    PUMICE_PUT(found, uniformAndStorageBuffer16BitAccess);
    PUMICE_PUT(found, storagePushConstant16);
    PUMICE_PUT(found, storageInputOutput16);
  }
  if (writer.has_extension("VK_EXT_robustness2")) {
    const auto found =
        query_features<VkPhysicalDeviceRobustness2FeaturesEXT>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT);
    PUMICE_PUT(found, robustBufferAccess2);
    PUMICE_PUT(found, robustImageAccess2);
    PUMICE_PUT(found, nullDescriptor);
  }
  if (writer.has_extension("VK_KHR_shader_float16_int8")) {
    const auto found =
        query_features<VkPhysicalDeviceShaderFloat16Int8Features>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES);
    PUMICE_PUT(found, shaderFloat16);
    PUMICE_PUT(found, shaderInt8);
  }
  if (writer.has_extension("VK_KHR_sampler_ycbcr_conversion")) {
    const auto found = query_features<VkPhysicalDeviceSamplerYcbcrConversionFeatures>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SAMPLER_YCBCR_CONVERSION_FEATURES);
    PUMICE_PUT(found, samplerYcbcrConversion);
  }
  if (writer.has_extension("VK_EXT_subgroup_size_control")) {
    const auto found = query_features<VkPhysicalDeviceSubgroupSizeControlFeatures>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
    PUMICE_PUT(found, subgroupSizeControl);
    PUMICE_PUT(found, computeFullSubgroups);
  }
  if (writer.has_extension("VK_KHR_shader_integer_dot_product")) {
    const auto found = query_features<VkPhysicalDeviceShaderIntegerDotProductFeatures>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES);
    PUMICE_PUT(found, shaderIntegerDotProduct);
  }
  if (writer.has_extension("VK_KHR_shader_subgroup_extended_types")) {
    const auto found = query_features<VkPhysicalDeviceShaderSubgroupExtendedTypesFeatures>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SUBGROUP_EXTENDED_TYPES_FEATURES);
    PUMICE_PUT(found, shaderSubgroupExtendedTypes);
  }
  if (writer.has_extension("VK_EXT_shader_atomic_float")) {
    const auto found = query_features<VkPhysicalDeviceShaderAtomicFloatFeaturesEXT>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT);
    PUMICE_PUT(found, shaderBufferFloat32Atomics);
    PUMICE_PUT(found, shaderBufferFloat32AtomicAdd);
    PUMICE_PUT(found, shaderBufferFloat64Atomics);
    PUMICE_PUT(found, shaderBufferFloat64AtomicAdd);
    PUMICE_PUT(found, shaderSharedFloat32Atomics);
    PUMICE_PUT(found, shaderSharedFloat32AtomicAdd);
    PUMICE_PUT(found, shaderSharedFloat64Atomics);
    PUMICE_PUT(found, shaderSharedFloat64AtomicAdd);
    PUMICE_PUT(found, shaderImageFloat32Atomics);
    PUMICE_PUT(found, shaderImageFloat32AtomicAdd);
    PUMICE_PUT(found, sparseImageFloat32Atomics);
    PUMICE_PUT(found, sparseImageFloat32AtomicAdd);
  }
  if (writer.has_extension("VK_EXT_shader_atomic_float2")) {
    const auto found = query_features<VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_2_FEATURES_EXT);
    PUMICE_PUT(found, shaderBufferFloat16Atomics);
    PUMICE_PUT(found, shaderBufferFloat16AtomicAdd);
    PUMICE_PUT(found, shaderBufferFloat16AtomicMinMax);
    PUMICE_PUT(found, shaderBufferFloat32AtomicMinMax);
    PUMICE_PUT(found, shaderBufferFloat64AtomicMinMax);
    PUMICE_PUT(found, shaderSharedFloat16Atomics);
    PUMICE_PUT(found, shaderSharedFloat16AtomicAdd);
    PUMICE_PUT(found, shaderSharedFloat16AtomicMinMax);
    PUMICE_PUT(found, shaderSharedFloat32AtomicMinMax);
    PUMICE_PUT(found, shaderSharedFloat64AtomicMinMax);
    PUMICE_PUT(found, shaderImageFloat32AtomicMinMax);
    PUMICE_PUT(found, sparseImageFloat32AtomicMinMax);
  }
  if (writer.has_extension("VK_KHR_vulkan_memory_model")) {
    const auto found =
        query_features<VkPhysicalDeviceVulkanMemoryModelFeatures>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES);
    PUMICE_PUT(found, vulkanMemoryModel);
    PUMICE_PUT(found, vulkanMemoryModelDeviceScope);
    PUMICE_PUT(found, vulkanMemoryModelAvailabilityVisibilityChains);
  }
}

// Cooperative matrix features, from the KHR extension if supported, else from NV.
void add_cooperative_matrix_features(MacroWriter& writer, VkPhysicalDevice physical) {
  if (writer.has_extension("VK_KHR_cooperative_matrix")) {
    const auto found = query_features<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
    PUMICE_PUT(found, cooperativeMatrix);
    PUMICE_PUT(found, cooperativeMatrixRobustBufferAccess);
  } else if (writer.has_extension("VK_NV_cooperative_matrix")) {
    const auto found = query_features<VkPhysicalDeviceCooperativeMatrixFeaturesNV>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV);
    writer.add_text("cooperativeMatrix", std::to_string(found.cooperativeMatrix));
    PUMICE_PUT(found, cooperativeMatrixRobustBufferAccess);
  }
}

void add_extension_properties(MacroWriter& writer, VkPhysicalDevice physical) {
  if (writer.has_extension("VK_EXT_robustness2")) {
    const auto found =
        query_properties<VkPhysicalDeviceRobustness2PropertiesEXT>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_PROPERTIES_EXT);
    PUMICE_PUT(found, robustStorageBufferAccessSizeAlignment);
    PUMICE_PUT(found, robustUniformBufferAccessSizeAlignment);
  }
  if (writer.has_extension("VK_KHR_shader_integer_dot_product")) {
    const auto found = query_properties<VkPhysicalDeviceShaderIntegerDotProductProperties>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES);
    PUMICE_PUT(found, integerDotProduct8BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProduct8BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProduct8BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProduct4x8BitPackedUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProduct4x8BitPackedSignedAccelerated);
    PUMICE_PUT(found, integerDotProduct4x8BitPackedMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProduct16BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProduct16BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProduct16BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProduct32BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProduct32BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProduct32BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProduct64BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProduct64BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProduct64BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating8BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating8BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating8BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating4x8BitPackedUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating4x8BitPackedSignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating4x8BitPackedMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating16BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating16BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating16BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating32BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating32BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating32BitMixedSignednessAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating64BitUnsignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating64BitSignedAccelerated);
    PUMICE_PUT(found, integerDotProductAccumulatingSaturating64BitMixedSignednessAccelerated);
  }
  if (writer.has_extension("VK_EXT_subgroup_size_control")) {
    const auto found = query_properties<VkPhysicalDeviceSubgroupSizeControlProperties>(
        physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
    PUMICE_PUT(found, minSubgroupSize);
    PUMICE_PUT(found, maxSubgroupSize);
    PUMICE_PUT(found, maxComputeWorkgroupSubgroups);
    PUMICE_PUT(found, requiredSubgroupSizeStages);
  }
  if (writer.has_extension("VK_KHR_driver_properties")) {
    const auto driver = query_properties<VkPhysicalDeviceDriverProperties>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
    writer.add_macro("driverID", static_cast<uint32_t>(driver.driverID));
    writer.add_macro("conformanceVersion_major", uint32_t{driver.conformanceVersion.major});
    writer.add_macro("conformanceVersion_minor", uint32_t{driver.conformanceVersion.minor});
    writer.add_macro("conformanceVersion_subminor", uint32_t{driver.conformanceVersion.subminor});
    writer.add_macro("conformanceVersion_patch", uint32_t{driver.conformanceVersion.patch});
  }
}

void add_subgroup_operations(MacroWriter& writer, VkPhysicalDevice physical) {
  const auto subgroup =
      query_properties<VkPhysicalDeviceSubgroupProperties>(physical, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
  PUMICE_PUT(subgroup, subgroupSize);
  PUMICE_PUT(subgroup, supportedStages);
  PUMICE_PUT(subgroup, supportedOperations);
  PUMICE_PUT(subgroup, quadOperationsInAllStages);
  for (const auto& [name, bit] : kSubgroupOperations)
    writer.add_text("subgroup_" + std::string(name), subgroup.supportedOperations & bit ? "1" : "0");
}

void add_device_properties(MacroWriter& writer, const VkPhysicalDeviceProperties& device) {
  PUMICE_PUT(device, apiVersion);
  PUMICE_PUT(device, driverVersion);
  PUMICE_PUT(device, vendorID);
  PUMICE_PUT(device, deviceID);
  writer.add_macro("deviceType", static_cast<uint32_t>(device.deviceType));
  add_limits(writer, device.limits);
  add_sparse_properties(writer, device.sparseProperties);
}

#undef PUMICE_PUT

// Macros of a context, created on first use.
struct CachedMacros {
  std::once_flag once;
  std::shared_ptr<const std::map<std::string, std::string>> macros;
};

std::map<std::string, std::string> query_device_macros(Context& context) {
  const DeviceInfo& info = context.info();
  const VkPhysicalDevice physical = context.vk().physical;
  MacroWriter writer(info);
  for (const auto& [extension, version] : info.extensions) writer.add_macro(extension, version);
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  vkGetPhysicalDeviceFeatures2(physical, &features);
  add_features(writer, features.features);
  add_extension_features(writer, physical);
  add_cooperative_matrix_features(writer, physical);
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  vkGetPhysicalDeviceProperties2(physical, &properties);
  add_device_properties(writer, properties.properties);
  add_extension_properties(writer, physical);
  add_subgroup_operations(writer, physical);
  return writer.take_macros();
}

}  // namespace

std::shared_ptr<const std::map<std::string, std::string>> get_device_macros(Context& context) {
  const auto known = context.attachment<CachedMacros>();
  std::call_once(known->once,
                 [&] { known->macros = std::make_shared<const std::map<std::string, std::string>>(query_device_macros(context)); });
  return known->macros;
}

}  // namespace pumice
