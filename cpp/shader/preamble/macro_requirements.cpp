#include "shader/preamble/macro_requirements.h"

#include <unordered_map>

namespace pumice {
namespace {

// A GLSL extension and the device macros that require it: for the Vulkan extension, its features and its properties.
struct ExtensionMacros {
  std::string_view extension;
  std::vector<std::string_view> macros;
};

const std::vector<ExtensionMacros>& get_extension_macros() {
  static const std::vector<ExtensionMacros> all{
      {"GL_KHR_cooperative_matrix",
       {"ncnn_VK_KHR_cooperative_matrix"}},  // not ncnn_cooperativeMatrix, which GL_NV_cooperative_matrix may also provide
      {"GL_NV_cooperative_matrix", {"ncnn_VK_NV_cooperative_matrix"}},
      {"GL_NV_cooperative_matrix2",
       {"ncnn_VK_NV_cooperative_matrix2", "ncnn_cooperativeMatrixWorkgroupScope", "ncnn_cooperativeMatrixFlexibleDimensions",
        "ncnn_cooperativeMatrixReductions", "ncnn_cooperativeMatrixConversions", "ncnn_cooperativeMatrixPerElementOperations",
        "ncnn_cooperativeMatrixTensorAddressing", "ncnn_cooperativeMatrixBlockLoads",
        "ncnn_cooperativeMatrixWorkgroupScopeMaxWorkgroupSize", "ncnn_cooperativeMatrixFlexibleDimensionsMaxDimension",
        "ncnn_cooperativeMatrixWorkgroupScopeReservedSharedMemory"}},
      {"GL_NV_cooperative_vector",
       {"ncnn_VK_NV_cooperative_vector", "ncnn_cooperativeVector", "ncnn_cooperativeVectorTraining",
        "ncnn_cooperativeVectorSupportedStages", "ncnn_cooperativeVectorTrainingFloat16Accumulation",
        "ncnn_cooperativeVectorTrainingFloat32Accumulation", "ncnn_maxCooperativeVectorComponents"}},
      {"GL_EXT_bfloat16",
       {"ncnn_VK_KHR_shader_bfloat16", "ncnn_shaderBFloat16Type", "ncnn_shaderBFloat16DotProduct", "ncnn_shaderBFloat16CooperativeMatrix"}},
      {"GL_EXT_float_e4m3", {"ncnn_VK_EXT_shader_float8", "ncnn_shaderFloat8", "ncnn_shaderFloat8CooperativeMatrix"}},
      {"GL_EXT_integer_dot_product", {"ncnn_VK_KHR_shader_integer_dot_product", "ncnn_shaderIntegerDotProduct"}},
      {"GL_KHR_shader_subgroup_rotate",
       {"ncnn_VK_KHR_shader_subgroup_rotate", "ncnn_shaderSubgroupRotate", "ncnn_shaderSubgroupRotateClustered", "ncnn_subgroup_rotate",
        "ncnn_subgroup_rotate_relative"}},
      {"GL_NV_shader_subgroup_partitioned", {"ncnn_VK_NV_shader_subgroup_partitioned", "ncnn_subgroup_partitioned"}},
      {"GL_EXT_shader_subgroup_extended_types_float16", {"ncnn_VK_KHR_shader_subgroup_extended_types", "ncnn_shaderSubgroupExtendedTypes"}},
      {"GL_EXT_shader_atomic_float", {"ncnn_VK_EXT_shader_atomic_float"}},
      {"GL_EXT_shader_atomic_float2", {"ncnn_VK_EXT_shader_atomic_float2"}},
      {"GL_KHR_memory_scope_semantics", {"ncnn_VK_KHR_vulkan_memory_model"}},
      {"GL_EXT_shader_realtime_clock", {"ncnn_VK_KHR_shader_clock"}},
      {"GL_EXT_expect_assume", {"ncnn_VK_KHR_shader_expect_assume"}},
      {"GL_EXT_maximal_reconvergence", {"ncnn_VK_KHR_shader_maximal_reconvergence"}},
      {"GL_EXT_shader_quad_control", {"ncnn_VK_KHR_shader_quad_control"}},
      {"GL_EXT_buffer_reference", {"ncnn_VK_KHR_buffer_device_address", "ncnn_VK_EXT_buffer_device_address"}},
      {"GL_EXT_debug_printf", {"ncnn_VK_KHR_shader_non_semantic_info"}},
  };
  return all;
}

}  // namespace

std::string_view get_required_glsl_extension(std::string_view macro) {
  static const auto by_macro = [] {
    std::unordered_map<std::string_view, std::string_view> map;
    for (const auto& gate : get_extension_macros())
      for (const auto name : gate.macros) map.emplace(name, gate.extension);
    return map;
  }();
  if (macro.starts_with("ncnn_integerDotProduct")) return "GL_EXT_integer_dot_product";
  const auto found = by_macro.find(macro);
  return found == by_macro.end() ? std::string_view() : found->second;
}

bool is_always_defined(std::string_view macro) {
  return macro.starts_with("ncnn_subgroup_");
}

}  // namespace pumice
