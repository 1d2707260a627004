// SPIR-V as a validated sequence of instructions. Modules are untrusted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice::spirv {

// Opcodes of the SPIR-V specification that the engine reads.
enum Op : uint16_t {
  OpUndef = 1,
  OpName = 5,
  OpMemberName = 6,
  OpString = 7,
  OpLine = 8,
  OpExtInstImport = 11,
  OpExtInst = 12,
  OpMemoryModel = 14,
  OpEntryPoint = 15,
  OpExecutionMode = 16,
  OpCapability = 17,
  OpTypeVoid = 19,
  OpTypeBool = 20,
  OpTypeInt = 21,
  OpTypeFloat = 22,
  OpTypeVector = 23,
  OpTypeMatrix = 24,
  OpTypeImage = 25,
  OpTypeSampledImage = 27,
  OpTypeArray = 28,
  OpTypeRuntimeArray = 29,
  OpTypeStruct = 30,
  OpTypePointer = 32,
  OpTypeFunction = 33,
  OpTypeForwardPointer = 39,
  OpConstantTrue = 41,
  OpConstantFalse = 42,
  OpConstant = 43,
  OpConstantComposite = 44,
  OpConstantNull = 46,
  OpSpecConstantTrue = 48,
  OpSpecConstantFalse = 49,
  OpSpecConstant = 50,
  OpSpecConstantComposite = 51,
  OpSpecConstantOp = 52,
  OpFunction = 54,
  OpFunctionParameter = 55,
  OpFunctionEnd = 56,
  OpFunctionCall = 57,
  OpVariable = 59,
  OpImageTexelPointer = 60,
  OpLoad = 61,
  OpStore = 62,
  OpCopyMemory = 63,
  OpAccessChain = 65,
  OpInBoundsAccessChain = 66,
  OpArrayLength = 68,
  OpDecorate = 71,
  OpMemberDecorate = 72,
  OpVectorExtractDynamic = 77,
  OpVectorInsertDynamic = 78,
  OpVectorShuffle = 79,
  OpCompositeConstruct = 80,
  OpCompositeExtract = 81,
  OpCompositeInsert = 82,
  OpCopyObject = 83,
  OpImageSampleImplicitLod = 87,
  OpImageSampleExplicitLod = 88,
  OpImageSampleProjImplicitLod = 91,
  OpImageSampleProjExplicitLod = 92,
  OpImageGather = 96,
  OpConvertFToU = 109,
  OpConvertFToS = 110,
  OpConvertSToF = 111,
  OpConvertUToF = 112,
  OpUConvert = 113,
  OpSConvert = 114,
  OpFConvert = 115,
  OpBitcast = 124,
  OpSNegate = 126,
  OpIAdd = 128,
  OpISub = 130,
  OpIMul = 132,
  OpUDiv = 134,
  OpSDiv = 135,
  OpUMod = 137,
  OpSRem = 138,
  OpSMod = 139,
  OpAny = 154,
  OpAll = 155,
  OpLogicalOr = 166,
  OpLogicalAnd = 167,
  OpLogicalNot = 168,
  OpSelect = 169,
  OpIEqual = 170,
  OpINotEqual = 171,
  OpUGreaterThan = 172,
  OpSGreaterThan = 173,
  OpUGreaterThanEqual = 174,
  OpSGreaterThanEqual = 175,
  OpULessThan = 176,
  OpSLessThan = 177,
  OpULessThanEqual = 178,
  OpSLessThanEqual = 179,
  OpShiftRightLogical = 194,
  OpShiftRightArithmetic = 195,
  OpShiftLeftLogical = 196,
  OpBitwiseOr = 197,
  OpBitwiseXor = 198,
  OpBitwiseAnd = 199,
  OpNot = 200,
  OpControlBarrier = 224,
  OpAtomicLoad = 227,
  OpAtomicStore = 228,
  OpAtomicExchange = 229,
  OpAtomicXor = 242,
  OpPhi = 245,
  OpLoopMerge = 246,
  OpSelectionMerge = 247,
  OpLabel = 248,
  OpBranch = 249,
  OpBranchConditional = 250,
  OpSwitch = 251,
  OpReturn = 253,
  OpReturnValue = 254,
  OpUnreachable = 255,
  OpNoLine = 317,
  OpExecutionModeId = 331,
  OpGroupNonUniformAllEqual = 336,
  OpGroupNonUniformBroadcast = 337,
  OpGroupNonUniformBroadcastFirst = 338,
  OpGroupNonUniformShuffle = 345,
  OpGroupNonUniformShuffleXor = 346,
  OpGroupNonUniformShuffleUp = 347,
  OpGroupNonUniformShuffleDown = 348,
  OpGroupNonUniformIAdd = 349,
  OpGroupNonUniformBitwiseAnd = 359,
  OpGroupNonUniformBitwiseOr = 360,
  OpGroupNonUniformBitwiseXor = 361,
  OpGroupNonUniformQuadBroadcast = 365,
  OpGroupNonUniformQuadSwap = 366,
  OpCopyLogical = 400,
  OpReadClockKHR = 5056,
  OpAtomicFMin = 5614,
  OpAtomicFMax = 5615,
  OpAtomicFAdd = 6035,
  OpTypeTensorARM = 4163,
  OpTypeCooperativeMatrixKHR = 4456,
  OpTypeRayQueryKHR = 4472,
  OpTypeHitObjectNV = 5281,
  OpTypeCooperativeVectorNV = 5288,
  OpTypeAccelerationStructureKHR = 5341,
  OpTypeCooperativeMatrixNV = 5358,
  OpTypeTensorLayoutNV = 5370,
  OpTypeTensorViewNV = 5371,
};

enum Decoration : uint32_t {
  SpecId = 1,
  Block = 2,
  BufferBlock = 3,
  ArrayStride = 6,
  RowMajor = 4,
  MatrixStride = 7,
  BuiltIn = 11,
  NonWritable = 24,
  NonReadable = 25,
  Binding = 33,
  DescriptorSet = 34,
  Offset = 35,
};

inline constexpr size_t kHeaderWords = 5, kBoundWord = 3;  // header length in words; index of the id bound, which is greater than every id
inline constexpr uint32_t kUniformConstant = 0, kUniform = 2, kWorkgroup = 4, kPrivate = 6, kFunction = 7, kPushConstant = 9,
                          kStorageBuffer = 12;  // storage classes
inline constexpr uint32_t kGlCompute = 5, kLocalSize = 17, kLocalSizeId = 38, kWorkgroupSize = 25;
inline constexpr uint32_t kUnroll = 1, kDontUnroll = 2;  // Loop Control bits

// One instruction; operands exclude the opcode word.
struct Instruction {
  uint16_t op;
  std::span<const uint32_t> operands;

  uint32_t operator[](size_t i) const;  // throws ShaderCompileError if i is past the end
  size_t size() const { return operands.size(); }
  std::string_view string_operand(size_t i) const;  // the string that starts at operand i
};

// Returns the module without Unroll hints.
std::vector<uint32_t> remove_unroll_hints(std::span<const uint32_t> module);

// Returns every instruction of a module in order. Throws ShaderCompileError if the word counts are inconsistent.
std::vector<Instruction> parse_instructions(std::span<const uint32_t> module);

// A SPIR-V capability and the Vulkan feature it requires: "Int64" and "shaderInt64" for 11. For an unknown number, both are "capability
// 9999".
struct Capability {
  std::string name;
  std::string feature;  // empty if none is needed
};
Capability get_capability(uint32_t number);

// Returns the capability of a float-controls execution mode: "DenormPreserve" for 4459; empty for other modes.
std::string_view get_float_control_capability(uint32_t execution_mode);

// Returns whether an instruction declares a type (core or extension).
bool is_type_declaration(uint16_t op);

// Returns the name of a format, such as "r32f" for 3; empty if undeclared.
std::string_view get_image_format_name(uint32_t number);

}  // namespace pumice::spirv
