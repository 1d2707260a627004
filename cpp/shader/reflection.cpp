// The interface of a compute shader, read from its SPIR-V (specification 1.6, section 2.3 and following).
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "core/error.h"
#include "shader/shader.h"

namespace pumice {
namespace {

constexpr uint32_t kMagic = 0x07230203;
constexpr uint32_t kMaxIds = 1u << 22;

// The opcodes that matter here.
enum Op : uint32_t {
  kOpName = 5, kOpMemberName = 6, kOpEntryPoint = 15, kOpExecutionMode = 16, kOpCapability = 17,
  kOpTypeBool = 20, kOpTypeInt = 21, kOpTypeFloat = 22, kOpTypeVector = 23, kOpTypeMatrix = 24, kOpTypeArray = 28, kOpTypeRuntimeArray = 29,
  kOpTypeStruct = 30, kOpTypePointer = 32, kOpConstant = 43, kOpConstantComposite = 44, kOpSpecConstantTrue = 48, kOpSpecConstantFalse = 49,
  kOpSpecConstant = 50, kOpSpecConstantComposite = 51, kOpVariable = 59, kOpDecorate = 71, kOpMemberDecorate = 72, kOpExecutionModeId = 331,
};

enum Decoration : uint32_t { kSpecId = 1, kBlock = 2, kBufferBlock = 3, kArrayStride = 6, kMatrixStride = 7, kBuiltIn = 11, kNonWritable = 24, kNonReadable = 25, kBinding = 33, kDescriptorSet = 34, kOffset = 35 };

constexpr uint32_t kStorageUniform = 2, kStoragePushConstant = 9, kStorageBuffer = 12;
constexpr uint32_t kModeLocalSize = 17, kModeLocalSizeId = 38, kWorkgroupSize = 25, kComputeModel = 5;

[[noreturn]] void malformed(const std::string& what) { throw ShaderCompileError("malformed SPIR-V: " + what); }

const std::map<uint32_t, const char*>& capability_names() {
  static const std::map<uint32_t, const char*> names = {
      {1, "Shader"}, {9, "Float16"}, {10, "Float64"}, {11, "Int64"}, {12, "Int64Atomics"}, {22, "Int16"}, {39, "Int8"}, {61, "GroupNonUniform"}, {62, "GroupNonUniformVote"},
      {63, "GroupNonUniformArithmetic"}, {64, "GroupNonUniformBallot"}, {65, "GroupNonUniformShuffle"}, {66, "GroupNonUniformShuffleRelative"}, {67, "GroupNonUniformClustered"},
      {68, "GroupNonUniformQuad"}, {4433, "StorageBuffer16BitAccess"}, {4434, "UniformAndStorageBuffer16BitAccess"}, {4435, "StoragePushConstant16"},
      {4448, "StorageBuffer8BitAccess"}, {4449, "UniformAndStorageBuffer8BitAccess"}, {4450, "StoragePushConstant8"}, {5345, "VulkanMemoryModel"}, {5347, "PhysicalStorageBufferAddresses"},
      {6019, "DotProduct"}, {6022, "CooperativeMatrixKHR"}};
  return names;
}

struct Type {
  uint32_t op = 0;
  uint32_t width = 0, is_signed = 0;  // scalars
  uint32_t element = 0, count = 0;    // vectors, matrices, arrays (count: an id for arrays); pointers: storage class in count
  std::vector<uint32_t> members;      // structures
};

struct Constant {
  uint32_t type = 0;
  uint64_t bits = 0;
  bool spec = false;
  std::vector<uint32_t> parts;  // composites
};

struct Variable {
  uint32_t id, pointer, storage;
};

using Decorations = std::map<uint32_t, uint32_t>;  // decoration -> first operand (0 where it has none)

// One walk over the words; everything checked against the bounds of its instruction.
class Module {
 public:
  explicit Module(const std::vector<uint32_t>& words) : words_(words) {
    if (words.size() < 5 || words[0] != kMagic) malformed("no SPIR-V header");
    if (words[3] > kMaxIds) malformed("an id bound of " + std::to_string(words[3]));
    for (size_t at = 5; at < words.size();) {
      const uint32_t length = words[at] >> 16;
      if (length == 0 || length > words.size() - at) malformed("an instruction runs past the end of the module");
      operands_ = std::span(words).subspan(at + 1, length - 1);
      take(words[at] & 0xffff);
      at += length;
    }
  }

  Interface interface() {
    if (!has_entry_) malformed("no compute entry point");
    Interface result;
    result.capabilities.assign(capabilities_.begin(), capabilities_.end());
    for (const auto& variable : variables_) add_variable(result, variable);
    add_spec_constants(result);
    add_local_size(result);
    std::sort(result.bindings.begin(), result.bindings.end(), [](const auto& a, const auto& b) { return a.binding < b.binding; });
    result.guarded = result.find_push_constant("pumice_threads_x") != nullptr;
    return result;
  }

 private:
  uint32_t word(size_t i) const {
    if (i >= operands_.size()) malformed("an instruction is too short");
    return operands_[i];
  }

  std::string text(size_t i) const {
    std::string result;
    for (; i < operands_.size(); ++i)
      for (int shift = 0; shift < 32; shift += 8) {
        const char c = static_cast<char>(operands_[i] >> shift & 0xff);
        if (c == 0) return result;
        result += c;
      }
    malformed("a text without an end");
  }

  void take(uint32_t op) {
    switch (op) {
      case kOpCapability: {
        const auto found = capability_names().find(word(0));
        capabilities_.insert(found == capability_names().end() ? "capability " + std::to_string(word(0)) : found->second);
        break;
      }
      case kOpEntryPoint:
        if (word(0) == kComputeModel) has_entry_ = true;
        break;
      case kOpExecutionMode:
      case kOpExecutionModeId:
        if (word(1) == kModeLocalSize) local_size_ = {word(2), word(3), word(4)};
        if (word(1) == kModeLocalSizeId) local_size_ids_ = {word(2), word(3), word(4)};
        break;
      case kOpName: names_[word(0)] = text(1); break;
      case kOpMemberName: member_names_[{word(0), word(1)}] = text(2); break;
      case kOpDecorate: decorations_[word(0)].emplace(word(1), operands_.size() > 2 ? operands_[2] : 0); break;
      case kOpMemberDecorate: member_decorations_[{word(0), word(1)}].emplace(word(2), operands_.size() > 3 ? operands_[3] : 0); break;
      case kOpTypeBool: types_[word(0)] = {op, 32, 0, 0, 0, {}}; break;
      case kOpTypeInt: types_[word(0)] = {op, word(1), word(2), 0, 0, {}}; break;
      case kOpTypeFloat: types_[word(0)] = {op, word(1), 0, 0, 0, {}}; break;
      case kOpTypeVector:
      case kOpTypeMatrix:
      case kOpTypeArray: types_[word(0)] = {op, 0, 0, word(1), word(2), {}}; break;
      case kOpTypeRuntimeArray: types_[word(0)] = {op, 0, 0, word(1), 0, {}}; break;
      case kOpTypeStruct: types_[word(0)] = {op, 0, 0, 0, 0, {operands_.begin() + 1, operands_.end()}}; break;
      case kOpTypePointer: types_[word(0)] = {op, 0, 0, word(2), word(1), {}}; break;
      case kOpConstant:
      case kOpSpecConstant: constants_[word(1)] = {word(0), word(2) | (operands_.size() > 3 ? uint64_t{operands_[3]} << 32 : 0), op == kOpSpecConstant, {}}; break;
      case kOpSpecConstantTrue:
      case kOpSpecConstantFalse: constants_[word(1)] = {word(0), op == kOpSpecConstantTrue, true, {}}; break;
      case kOpConstantComposite:
      case kOpSpecConstantComposite: constants_[word(1)] = {word(0), 0, op == kOpSpecConstantComposite, {operands_.begin() + 2, operands_.end()}}; break;
      case kOpVariable: variables_.push_back({word(1), word(0), word(2)}); break;
      default: break;
    }
  }

  const Type& type(uint32_t id) const {
    const auto found = types_.find(id);
    if (found == types_.end()) malformed("type " + std::to_string(id) + " is not declared");
    return found->second;
  }

  std::optional<uint32_t> decoration(uint32_t id, Decoration wanted) const {
    const auto found = decorations_.find(id);
    if (found == decorations_.end()) return {};
    const auto value = found->second.find(wanted);
    return value == found->second.end() ? std::nullopt : std::optional(value->second);
  }

  std::optional<uint32_t> member_decoration(uint32_t id, uint32_t member, Decoration wanted) const {
    const auto found = member_decorations_.find({id, member});
    if (found == member_decorations_.end()) return {};
    const auto value = found->second.find(wanted);
    return value == found->second.end() ? std::nullopt : std::optional(value->second);
  }

  std::string member_name(uint32_t id, uint32_t member) const {
    const auto found = member_names_.find({id, member});
    if (found == member_names_.end() || found->second.empty())
      throw ShaderCompileError("the SPIR-V has no names (was it stripped?): a binding or push constant cannot be told by name");
    return found->second;
  }

  ScalarType scalar_of(const Type& scalar) const {
    if (scalar.op == kOpTypeBool) return ScalarType::uint32;
    if (scalar.op == kOpTypeFloat) return scalar.width == 16 ? ScalarType::float16 : scalar.width == 32 ? ScalarType::float32 : scalar.width == 64 ? ScalarType::float64 : ScalarType::other;
    if (scalar.op != kOpTypeInt) return ScalarType::other;
    switch (scalar.width) {
      case 8: return scalar.is_signed ? ScalarType::int8 : ScalarType::uint8;
      case 16: return scalar.is_signed ? ScalarType::int16 : ScalarType::uint16;
      case 32: return scalar.is_signed ? ScalarType::int32 : ScalarType::uint32;
      case 64: return scalar.is_signed ? ScalarType::int64 : ScalarType::uint64;
      default: return ScalarType::other;
    }
  }

  struct Element {
    ScalarType scalar;
    uint32_t components, bytes;
  };

  Element element_of(uint32_t id) const {
    const Type* current = &type(id);
    uint32_t components = 1;
    for (int depth = 0; current->op == kOpTypeVector || current->op == kOpTypeMatrix; ++depth) {
      if (depth > 4) malformed("a vector of vectors");
      components *= current->count;
      current = &type(current->element);
    }
    return {scalar_of(*current), components, components * current->width / 8};
  }

  void add_variable(Interface& result, const Variable& variable) {
    const Type& pointer = type(variable.pointer);
    if (pointer.op != kOpTypePointer) malformed("a variable whose type is no pointer");
    if (variable.storage == kStoragePushConstant) return add_push_constants(result, pointer.element);
    if (variable.storage != kStorageBuffer && variable.storage != kStorageUniform) return;
    const auto binding = decoration(variable.id, kBinding);
    if (!binding) return;
    if (decoration(variable.id, kDescriptorSet).value_or(0) != 0) throw UnsupportedError("binding " + std::to_string(*binding) + " is not in descriptor set 0");
    const Type& block = type(pointer.element);
    if (block.op != kOpTypeStruct || block.members.empty()) throw UnsupportedError("binding " + std::to_string(*binding) + " is no buffer block (arrays of blocks and images are not supported)");
    result.bindings.push_back(binding_of(*binding, variable, pointer.element, block));
  }

  BindingInterface binding_of(uint32_t number, const Variable& variable, uint32_t block_id, const Type& block) {
    const auto last = static_cast<uint32_t>(block.members.size() - 1);
    BindingInterface binding;
    binding.binding = number;
    binding.name = member_name(block_id, last);
    binding.block = names_.contains(block_id) ? names_[block_id] : "";
    binding.uniform = variable.storage == kStorageUniform && !decoration(block_id, kBufferBlock);
    bool readable = !decoration(variable.id, kNonReadable), writable = !binding.uniform && !decoration(variable.id, kNonWritable);
    bool every_read_only = true, every_write_only = true;
    for (uint32_t member = 0; member <= last; ++member) {
      every_read_only = every_read_only && member_decoration(block_id, member, kNonWritable);
      every_write_only = every_write_only && member_decoration(block_id, member, kNonReadable);
    }
    writable = writable && !every_read_only;
    readable = readable && !every_write_only;
    binding.access = !writable ? Access::read : !readable ? Access::write : Access::read_write;
    const Type& array = type(block.members[last]);
    const bool is_array = array.op == kOpTypeArray || array.op == kOpTypeRuntimeArray;
    const Element element = element_of(is_array ? array.element : block.members[last]);
    binding.scalar = element.scalar;
    binding.components = element.components;
    binding.element_bytes = is_array ? decoration(block.members[last], kArrayStride).value_or(element.bytes) : element.bytes;
    return binding;
  }

  uint64_t constant_value(uint32_t id) const {
    const auto found = constants_.find(id);
    if (found == constants_.end()) malformed("constant " + std::to_string(id) + " is not declared");
    return found->second.bits;
  }

  void add_push_constants(Interface& result, uint32_t block_id) {
    const Type& block = type(block_id);
    if (block.op != kOpTypeStruct) malformed("push constants that are no block");
    for (uint32_t member = 0; member < block.members.size(); ++member) {
      PushConstant constant;
      constant.name = member_name(block_id, member);
      const auto offset = member_decoration(block_id, member, kOffset);
      if (!offset) malformed("push constant '" + constant.name + "' has no offset");
      constant.offset = *offset;
      const Type& member_type = type(block.members[member]);
      const bool is_array = member_type.op == kOpTypeArray;
      const Element element = element_of(is_array ? member_type.element : block.members[member]);
      constant.scalar = element.scalar;
      constant.components = element.components;
      constant.count = is_array ? static_cast<uint32_t>(constant_value(member_type.count)) : 1;
      constant.bytes = is_array ? constant.count * decoration(block.members[member], kArrayStride).value_or(element.bytes) : element.bytes;
      if (constant.count > 4096 || constant.offset > 65536 || constant.bytes > 65536) malformed("push constant '" + constant.name + "' is larger than any device takes");
      result.push_bytes = std::max(result.push_bytes, constant.offset + constant.bytes);
      result.push_constants.push_back(std::move(constant));
    }
    result.push_bytes = (result.push_bytes + 3) / 4 * 4;
  }

  void add_spec_constants(Interface& result) {
    for (const auto& [id, constant] : constants_) {
      const auto spec_id = decoration(id, kSpecId);
      if (!constant.spec || !spec_id) continue;
      result.spec_constants.push_back({*spec_id, names_.contains(id) ? names_[id] : "", scalar_of(type(constant.type)), constant.bits});
    }
    std::sort(result.spec_constants.begin(), result.spec_constants.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  void add_local_size(Interface& result) {
    result.local_size = local_size_;
    std::array<uint32_t, 3> parts = local_size_ids_;
    for (const auto& [id, all] : decorations_) {
      const auto builtin = all.find(kBuiltIn);
      if (builtin == all.end() || builtin->second != kWorkgroupSize) continue;
      const auto found = constants_.find(id);
      if (found == constants_.end() || found->second.parts.size() != 3) malformed("a workgroup size that is no vector of three");
      std::copy(found->second.parts.begin(), found->second.parts.end(), parts.begin());
    }
    for (size_t axis = 0; axis < 3; ++axis) {
      if (parts[axis] == 0) continue;
      result.local_size[axis] = static_cast<uint32_t>(constant_value(parts[axis]));
      result.local_size_id[axis] = decoration(parts[axis], kSpecId);
    }
  }

  const std::vector<uint32_t>& words_;
  std::span<const uint32_t> operands_;
  std::set<std::string> capabilities_;
  bool has_entry_ = false;
  std::array<uint32_t, 3> local_size_{1, 1, 1}, local_size_ids_{};
  std::map<uint32_t, std::string> names_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> member_names_;
  std::map<uint32_t, Decorations> decorations_;
  std::map<std::pair<uint32_t, uint32_t>, Decorations> member_decorations_;
  std::map<uint32_t, Type> types_;
  std::map<uint32_t, Constant> constants_;
  std::vector<Variable> variables_;
};

template <typename T>
const T* find_by_name(const std::vector<T>& all, std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const T& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const BindingInterface* Interface::find_binding(std::string_view name) const { return find_by_name(bindings, name); }
const PushConstant* Interface::find_push_constant(std::string_view name) const { return find_by_name(push_constants, name); }
const SpecConstant* Interface::find_spec_constant(std::string_view name) const { return find_by_name(spec_constants, name); }

Interface reflect(const std::vector<uint32_t>& spirv) { return Module(spirv).interface(); }

}  // namespace pumice
