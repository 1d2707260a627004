#include "shader/spirv/spirv.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kMagic = 0x07230203;

struct CapabilityInfo {
  uint32_t number;
  std::string_view name, feature;
};

// SPIR-V capabilities and the Vulkan feature that each needs; "" if core Vulkan includes it or execution modes determine it.
constexpr CapabilityInfo kCapabilities[] = {
    {0, "Matrix", ""},
    {1, "Shader", ""},
    {4, "Addresses", "OpenCL"},
    {5, "Linkage", "OpenCL"},
    {6, "Kernel", "OpenCL"},
    {8, "Float16Buffer", "OpenCL"},
    {9, "Float16", "shaderFloat16"},
    {10, "Float64", "shaderFloat64"},
    {11, "Int64", "shaderInt64"},
    {12, "Int64Atomics", "shaderBufferInt64Atomics"},
    {22, "Int16", "shaderInt16"},
    {25, "ImageGatherExtended", "shaderImageGatherExtended"},
    {27, "StorageImageMultisample", "shaderStorageImageMultisample"},
    {28, "UniformBufferArrayDynamicIndexing", "shaderUniformBufferArrayDynamicIndexing"},
    {29, "SampledImageArrayDynamicIndexing", "shaderSampledImageArrayDynamicIndexing"},
    {30, "StorageBufferArrayDynamicIndexing", "shaderStorageBufferArrayDynamicIndexing"},
    {31, "StorageImageArrayDynamicIndexing", "shaderStorageImageArrayDynamicIndexing"},
    {38, "GenericPointer", "OpenCL"},
    {39, "Int8", "shaderInt8"},
    {43, "Sampled1D", ""},
    {44, "Image1D", ""},
    {46, "SampledBuffer", ""},
    {47, "ImageBuffer", ""},
    {49, "StorageImageExtendedFormats", "shaderStorageImageExtendedFormats"},
    {50, "ImageQuery", ""},
    {51, "DerivativeControl", ""},
    {55, "StorageImageReadWithoutFormat", "shaderStorageImageReadWithoutFormat"},
    {56, "StorageImageWriteWithoutFormat", "shaderStorageImageWriteWithoutFormat"},
    {61, "GroupNonUniform", "subgroupBasic"},
    {62, "GroupNonUniformVote", "subgroupVote"},
    {63, "GroupNonUniformArithmetic", "subgroupArithmetic"},
    {64, "GroupNonUniformBallot", "subgroupBallot"},
    {65, "GroupNonUniformShuffle", "subgroupShuffle"},
    {66, "GroupNonUniformShuffleRelative", "subgroupShuffleRelative"},
    {67, "GroupNonUniformClustered", "subgroupClustered"},
    {68, "GroupNonUniformQuad", "subgroupQuad"},
    {4423, "SubgroupBallotKHR", "VK_EXT_shader_subgroup_ballot"},
    {4427, "DrawParameters", "shaderDrawParameters"},
    {4428, "WorkgroupMemoryExplicitLayoutKHR", "workgroupMemoryExplicitLayout"},
    {4429, "WorkgroupMemoryExplicitLayout8BitAccessKHR", "workgroupMemoryExplicitLayout8BitAccess"},
    {4430, "WorkgroupMemoryExplicitLayout16BitAccessKHR", "workgroupMemoryExplicitLayout16BitAccess"},
    {4431, "SubgroupVoteKHR", "VK_EXT_shader_subgroup_vote"},
    {4433, "StorageBuffer16BitAccess", "storageBuffer16BitAccess"},
    {4434, "UniformAndStorageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess"},
    {4435, "StoragePushConstant16", "storagePushConstant16"},
    {4436, "StorageInputOutput16", "storageInputOutput16"},
    {4437, "DeviceGroup", ""},
    {4441, "VariablePointersStorageBuffer", "variablePointersStorageBuffer"},
    {4442, "VariablePointers", "variablePointers"},
    {4448, "StorageBuffer8BitAccess", "storageBuffer8BitAccess"},
    {4449, "UniformAndStorageBuffer8BitAccess", "uniformAndStorageBuffer8BitAccess"},
    {4450, "StoragePushConstant8", "storagePushConstant8"},
    {4464, "DenormPreserve", ""},
    {4465, "DenormFlushToZero", ""},
    {4466, "SignedZeroInfNanPreserve", ""},
    {4467, "RoundingModeRTE", ""},
    {4468, "RoundingModeRTZ", ""},
    {5055, "ShaderClockKHR", "shaderSubgroupClock"},
    {5116, "BFloat16TypeKHR", "shaderBFloat16Type"},
    {5117, "BFloat16DotProductKHR", "shaderBFloat16DotProduct"},
    {5118, "BFloat16CooperativeMatrixKHR", "shaderBFloat16CooperativeMatrix"},
    {5297, "GroupNonUniformPartitionedNV", "subgroupPartitioned"},
    {5301, "ShaderNonUniform", ""},
    {5302, "RuntimeDescriptorArray", "runtimeDescriptorArray"},
    {5345, "VulkanMemoryModel", "vulkanMemoryModel"},
    {5346, "VulkanMemoryModelDeviceScope", "vulkanMemoryModelDeviceScope"},
    {5347, "PhysicalStorageBufferAddresses", "bufferDeviceAddress"},
    {5357, "CooperativeMatrixNV", "VK_NV_cooperative_matrix"},
    {5379, "DemoteToHelperInvocation", "shaderDemoteToHelperInvocation"},
    {6016, "DotProductInputAll", "shaderIntegerDotProduct"},
    {6017, "DotProductInput4x8Bit", "shaderIntegerDotProduct"},
    {6018, "DotProductInput4x8BitPacked", "shaderIntegerDotProduct"},
    {6019, "DotProduct", "shaderIntegerDotProduct"},
    {6022, "CooperativeMatrixKHR", "cooperativeMatrix"},
    {6026, "GroupNonUniformRotateKHR", "subgroupRotate"},
    {6033, "AtomicFloat32AddEXT", "shaderBufferFloat32AtomicAdd"},
    {6034, "AtomicFloat64AddEXT", "shaderBufferFloat64AtomicAdd"},
    {6095, "AtomicFloat16AddEXT", "shaderBufferFloat16AtomicAdd"},
    {5612, "AtomicFloat32MinMaxEXT", "shaderBufferFloat32AtomicMinMax"},
    {5613, "AtomicFloat64MinMaxEXT", "shaderBufferFloat64AtomicMinMax"},
    {5616, "AtomicFloat16MinMaxEXT", "shaderBufferFloat16AtomicMinMax"},
};

}  // namespace

uint32_t Instruction::operator[](size_t i) const {
  if (i >= operands.size())
    throw ShaderCompileError("malformed SPIR-V: instruction " + std::to_string(op) + ": expected more than " + std::to_string(i) +
                             " operands, given " + std::to_string(operands.size()));
  return operands[i];
}

std::string_view Instruction::string_operand(size_t i) const {
  (*this)[i];
  const char* begin = reinterpret_cast<const char*>(operands.data() + i);
  const size_t max_length = (operands.size() - i) * sizeof(uint32_t);
  const size_t length = strnlen(begin, max_length);
  if (length == max_length) throw ShaderCompileError("malformed SPIR-V: an unterminated string in instruction " + std::to_string(op));
  return {begin, length};
}

std::vector<Instruction> parse_instructions(std::span<const uint32_t> module) {
  if (module.size() < kHeaderWords)
    throw ShaderCompileError("malformed SPIR-V: expected at least 5 words, given " + std::to_string(module.size()));
  if (module[0] != kMagic)
    throw ShaderCompileError("malformed SPIR-V: it does not start with the magic number 0x07230203 in this machine's byte order");
  std::vector<Instruction> result;
  for (size_t at = kHeaderWords; at < module.size();) {
    const size_t words = module[at] >> 16;
    if (words == 0 || words > module.size() - at)
      throw ShaderCompileError("malformed SPIR-V: the instruction at word " + std::to_string(at) + " has " + std::to_string(words) +
                               " words, " + std::to_string(module.size() - at) + " are left");
    result.push_back({static_cast<uint16_t>(module[at]), module.subspan(at + 1, words - 1)});
    at += words;
  }
  return result;
}

std::vector<uint32_t> remove_unroll_hints(std::span<const uint32_t> module) {
  std::vector<uint32_t> result(module.begin(), module.end());
  for (const Instruction& instruction : parse_instructions(module)) {
    if (instruction.op != OpLoopMerge || (instruction[2] & kUnroll) == 0) continue;
    const auto at = static_cast<size_t>(instruction.operands.data() - module.data()) + 2;
    result[at] = (result[at] & ~kUnroll) | kDontUnroll;
  }
  return result;
}

Capability get_capability(uint32_t number) {
  const auto found = std::ranges::find(kCapabilities, number, &CapabilityInfo::number);
  if (found != std::end(kCapabilities)) return {std::string(found->name), std::string(found->feature)};
  const std::string unknown = "capability " + std::to_string(number);
  return {unknown, unknown};
}

std::string_view get_float_control_capability(uint32_t execution_mode) {
  constexpr uint32_t kFirst = 4459;
  constexpr std::string_view names[] = {"DenormPreserve", "DenormFlushToZero", "SignedZeroInfNanPreserve", "RoundingModeRTE",
                                        "RoundingModeRTZ"};
  return execution_mode >= kFirst && execution_mode - kFirst < std::size(names) ? names[execution_mode - kFirst] : std::string_view();
}

bool is_type_declaration(uint16_t op) {
  constexpr uint16_t kExtensionTypes[] = {OpTypeTensorARM,           OpTypeCooperativeMatrixKHR, OpTypeRayQueryKHR,
                                          OpTypeHitObjectNV,         OpTypeCooperativeVectorNV,  OpTypeAccelerationStructureKHR,
                                          OpTypeCooperativeMatrixNV, OpTypeTensorLayoutNV,       OpTypeTensorViewNV};
  return (op >= OpTypeVoid && op <= OpTypeFunction) || std::ranges::find(kExtensionTypes, op) != std::end(kExtensionTypes);
}

// Returns the GLSL name of an image format.
std::string_view get_image_format_name(uint32_t number) {
  constexpr std::string_view names[] = {
      "",          "rgba32f",   "rgba16f",  "r32f",     "rgba8",    "rgba8_snorm", "rg32f", "rg16f",        "r11f_g11f_b10f",
      "r16f",      "rgba16",    "rgb10_a2", "rg16",     "rg8",      "r16",         "r8",    "rgba16_snorm", "rg16_snorm",
      "rg8_snorm", "r16_snorm", "r8_snorm", "rgba32i",  "rgba16i",  "rgba8i",      "r32i",  "rg32i",        "rg16i",
      "rg8i",      "r16i",      "r8i",      "rgba32ui", "rgba16ui", "rgba8ui",     "r32ui", "rgb10_a2ui",   "rg32ui",
      "rg16ui",    "rg8ui",     "r16ui",    "r8ui",     "r64ui",    "r64i"};
  return number < std::size(names) ? names[number] : "unknown";
}

}  // namespace pumice::spirv
