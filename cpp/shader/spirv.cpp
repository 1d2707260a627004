#include "shader/spirv.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kMagic = 0x07230203;
constexpr size_t kHeaderWords = 5;

struct CapabilityName {
  uint32_t number;
  std::string_view name;
};

constexpr CapabilityName kCapabilities[] = {
    {0, "Matrix"},
    {1, "Shader"},
    {4, "Addresses"},
    {5, "Linkage"},
    {6, "Kernel"},
    {8, "Float16Buffer"},
    {9, "Float16"},
    {10, "Float64"},
    {11, "Int64"},
    {12, "Int64Atomics"},
    {22, "Int16"},
    {25, "ImageGatherExtended"},
    {27, "StorageImageMultisample"},
    {28, "UniformBufferArrayDynamicIndexing"},
    {29, "SampledImageArrayDynamicIndexing"},
    {30, "StorageBufferArrayDynamicIndexing"},
    {31, "StorageImageArrayDynamicIndexing"},
    {38, "GenericPointer"},
    {39, "Int8"},
    {43, "Sampled1D"},
    {44, "Image1D"},
    {46, "SampledBuffer"},
    {47, "ImageBuffer"},
    {49, "StorageImageExtendedFormats"},
    {50, "ImageQuery"},
    {51, "DerivativeControl"},
    {55, "StorageImageReadWithoutFormat"},
    {56, "StorageImageWriteWithoutFormat"},
    {61, "GroupNonUniform"},
    {62, "GroupNonUniformVote"},
    {63, "GroupNonUniformArithmetic"},
    {64, "GroupNonUniformBallot"},
    {65, "GroupNonUniformShuffle"},
    {66, "GroupNonUniformShuffleRelative"},
    {67, "GroupNonUniformClustered"},
    {68, "GroupNonUniformQuad"},
    {4423, "SubgroupBallotKHR"},
    {4427, "DrawParameters"},
    {4428, "WorkgroupMemoryExplicitLayoutKHR"},
    {4429, "WorkgroupMemoryExplicitLayout8BitAccessKHR"},
    {4430, "WorkgroupMemoryExplicitLayout16BitAccessKHR"},
    {4431, "SubgroupVoteKHR"},
    {4433, "StorageBuffer16BitAccess"},
    {4434, "UniformAndStorageBuffer16BitAccess"},
    {4435, "StoragePushConstant16"},
    {4436, "StorageInputOutput16"},
    {4437, "DeviceGroup"},
    {4441, "VariablePointersStorageBuffer"},
    {4442, "VariablePointers"},
    {4448, "StorageBuffer8BitAccess"},
    {4449, "UniformAndStorageBuffer8BitAccess"},
    {4450, "StoragePushConstant8"},
    {4464, "DenormPreserve"},
    {4465, "DenormFlushToZero"},
    {4466, "SignedZeroInfNanPreserve"},
    {4467, "RoundingModeRTE"},
    {4468, "RoundingModeRTZ"},
    {5055, "ShaderClockKHR"},
    {5116, "BFloat16TypeKHR"},
    {5117, "BFloat16DotProductKHR"},
    {5118, "BFloat16CooperativeMatrixKHR"},
    {5297, "GroupNonUniformPartitionedNV"},
    {5301, "ShaderNonUniform"},
    {5302, "RuntimeDescriptorArray"},
    {5345, "VulkanMemoryModel"},
    {5346, "VulkanMemoryModelDeviceScope"},
    {5347, "PhysicalStorageBufferAddresses"},
    {5357, "CooperativeMatrixNV"},
    {5379, "DemoteToHelperInvocation"},
    {6016, "DotProductInputAll"},
    {6017, "DotProductInput4x8Bit"},
    {6018, "DotProductInput4x8BitPacked"},
    {6019, "DotProduct"},
    {6022, "CooperativeMatrixKHR"},
    {6026, "GroupNonUniformRotateKHR"},
    {6033, "AtomicFloat32AddEXT"},
    {6034, "AtomicFloat64AddEXT"},
    {6095, "AtomicFloat16AddEXT"},
    {5612, "AtomicFloat32MinMaxEXT"},
    {5613, "AtomicFloat64MinMaxEXT"},
    {5616, "AtomicFloat16MinMaxEXT"},
};

}  // namespace

uint32_t Instruction::operator[](size_t i) const {
  if (i >= operands.size())
    throw ShaderCompileError("malformed SPIR-V: instruction " + std::to_string(op) + ": expected more than " + std::to_string(i) +
                             " operands, given " + std::to_string(operands.size()));
  return operands[i];
}

std::string_view Instruction::text(size_t i) const {
  (*this)[i];
  const char* begin = reinterpret_cast<const char*>(operands.data() + i);
  const size_t room = (operands.size() - i) * sizeof(uint32_t);
  const size_t length = strnlen(begin, room);
  if (length == room) throw ShaderCompileError("malformed SPIR-V: a text without an end in instruction " + std::to_string(op));
  return {begin, length};
}

std::vector<Instruction> instructions(std::span<const uint32_t> module) {
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

std::string capability_name(uint32_t capability) {
  const auto found = std::ranges::find(kCapabilities, capability, &CapabilityName::number);
  return found != std::end(kCapabilities) ? std::string(found->name) : "capability " + std::to_string(capability);
}

}  // namespace pumice::spirv
