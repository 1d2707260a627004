#include "shader/spirv/spirv_module.h"

#include <algorithm>

#include "core/error.h"
#include "shader/source/compiler_diagnostics.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kEncodingBfloat16 = 0;  // FP Encoding operand of OpTypeFloat
constexpr uint64_t kMaxBytes = uint64_t{1} << 31;

ShaderCompileError make_malformed_error(const std::string& reason) {
  return ShaderCompileError("malformed SPIR-V: " + reason);
}

std::string format_id(uint32_t id) {
  return "%" + std::to_string(id);
}

uint32_t check_type_bytes(uint64_t bytes) {
  if (bytes > kMaxBytes) throw make_malformed_error("a type of " + std::to_string(bytes) + " bytes");
  return static_cast<uint32_t>(bytes);
}

ScalarType get_integer_type(uint32_t width, bool is_signed) {
  switch (width) {
    case 8:
      return is_signed ? ScalarType::int8 : ScalarType::uint8;
    case 16:
      return is_signed ? ScalarType::int16 : ScalarType::uint16;
    case 32:
      return is_signed ? ScalarType::int32 : ScalarType::uint32;
    case 64:
      return is_signed ? ScalarType::int64 : ScalarType::uint64;
    default:
      return ScalarType::other;
  }
}

ScalarType get_float_type(const Instruction& type) {
  if (type.size() > 2) return type[1] == 16 && type[2] == kEncodingBfloat16 ? ScalarType::bfloat16 : ScalarType::other;
  switch (type[1]) {
    case 16:
      return ScalarType::float16;
    case 32:
      return ScalarType::float32;
    case 64:
      return ScalarType::float64;
    default:
      return ScalarType::other;
  }
}

TypeLayout make_scalar_layout(ScalarType scalar, uint32_t width) {
  TypeLayout layout;
  layout.scalar = scalar;
  layout.bytes = std::max(width, uint32_t{8}) / 8;
  return layout;
}

// Returns the index of the operand with the result id, for instructions that are looked up by id.
std::optional<size_t> find_result_operand(uint16_t op) {
  if (is_type_declaration(op)) return 0;
  if (op >= OpConstantTrue && op <= OpSpecConstantOp) return 1;
  if (op == OpVariable || op == OpFunction) return 1;
  return {};
}

}  // namespace

Module::Module(std::span<const uint32_t> words) : instructions_(parse_instructions(words)) {
  for (const auto& instruction : instructions_) index_instruction(instruction);
}

void Module::index_instruction(const Instruction& instruction) {
  switch (instruction.op) {
    case OpName:
      names_[instruction[0]] = sanitize_text(std::string(instruction.string_operand(1)));
      return;
    case OpMemberName:
      member_names_[{instruction[0], instruction[1]}] = sanitize_text(std::string(instruction.string_operand(2)));
      return;
    case OpDecorate:
      decorations_[{instruction[0], instruction[1]}] = instruction.size() > 2 ? instruction[2] : 1;
      return;
    case OpMemberDecorate:
      member_decorations_[{instruction[0], instruction[1], instruction[2]}] = instruction.size() > 3 ? instruction[3] : 1;
      return;
    case OpTypeForwardPointer:
      nesting_[instruction[0]] = 0;
      return;
    default:
      if (is_type_declaration(instruction.op)) check_type(instruction);
      if (const auto operand = find_result_operand(instruction.op)) add_definition(instruction[*operand], instruction);
  }
}

void Module::add_definition(uint32_t id, const Instruction& instruction) {
  if (!definitions_.emplace(id, &instruction).second) throw make_malformed_error(format_id(id) + " is defined twice");
}

int Module::get_nesting_depth(uint32_t component) const {
  const auto found = nesting_.find(component);
  if (found == nesting_.end()) throw make_malformed_error("type " + format_id(component) + " is used before its definition");
  return found->second;
}

void Module::check_type(const Instruction& type) {
  int nesting = 0;
  switch (type.op) {
    case OpTypeInt:
    case OpTypeFloat:
      if (type[1] < 1 || type[1] > 64) throw make_malformed_error("a number of " + std::to_string(type[1]) + " bits");
      break;
    case OpTypeVector:
    case OpTypeMatrix:
      if (type[2] < 2 || type[2] > 16) throw make_malformed_error("a vector or matrix of " + std::to_string(type[2]) + " components");
      nesting = get_nesting_depth(type[1]);
      break;
    case OpTypeArray:
    case OpTypeRuntimeArray:
      nesting = get_nesting_depth(type[1]);
      break;
    case OpTypeStruct:
      for (size_t member = 1; member < type.size(); ++member) nesting = std::max(nesting, get_nesting_depth(type[member]));
      break;
    default:
      break;
  }
  if (nesting >= kMaxTypeNesting) throw make_malformed_error("types nest deeper than " + std::to_string(kMaxTypeNesting));
  nesting_[type[0]] = nesting + 1;
}

const Instruction& Module::find_definition_before(const Instruction& user, uint32_t id) const {
  const Instruction& found = definition(id);
  if (&found >= &user) throw make_malformed_error(format_id(id) + " is used before its definition");
  return found;
}

const Instruction& Module::definition(uint32_t id) const {
  const auto found = definitions_.find(id);
  if (found == definitions_.end()) throw make_malformed_error(format_id(id) + " is used but not defined");
  return *found->second;
}

std::string Module::name(uint32_t id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? std::string() : found->second;
}

std::string Module::member_name(uint32_t type, uint32_t member) const {
  const auto found = member_names_.find({type, member});
  return found == member_names_.end() ? std::string() : found->second;
}

std::optional<uint32_t> Module::find_decoration(uint32_t id, Decoration decoration) const {
  const auto found = decorations_.find({id, decoration});
  if (found == decorations_.end()) return {};
  return found->second;
}

std::optional<uint32_t> Module::find_member_decoration(uint32_t type, uint32_t member, Decoration decoration) const {
  const auto found = member_decorations_.find({type, member, decoration});
  if (found == member_decorations_.end()) return {};
  return found->second;
}

TypeLayout Module::get_layout(uint32_t type, uint32_t matrix_stride, int depth) const {
  const std::pair key(type, matrix_stride);
  if (const auto known = layouts_.find(key); known != layouts_.end()) return known->second;
  return layouts_[key] = compute_layout(type, matrix_stride, depth);
}

TypeLayout Module::compute_layout(uint32_t type, uint32_t matrix_stride, int depth) const {
  if (depth > kMaxTypeDepth) throw make_malformed_error("types nest deeper than " + std::to_string(kMaxTypeDepth));
  const auto& definition = this->definition(type);
  switch (definition.op) {
    case OpTypeBool:
      return make_scalar_layout(ScalarType::uint32, 32);
    case OpTypeInt:
      return make_scalar_layout(get_integer_type(definition[1], definition[2] != 0), definition[1]);
    case OpTypeFloat:
      return make_scalar_layout(get_float_type(definition), definition[1]);
    case OpTypeVector:
    case OpTypeMatrix: {
      TypeLayout vector = get_layout(definition[1], 0, depth + 1);
      const uint32_t columns = definition[2];
      vector.bytes = check_type_bytes(uint64_t{columns} * (definition.op == OpTypeMatrix && matrix_stride ? matrix_stride : vector.bytes));
      vector.components *= columns;
      return vector;
    }
    case OpTypeArray:
    case OpTypeRuntimeArray:
      return compute_array_layout(type, definition, matrix_stride, depth);
    case OpTypeStruct:
      return compute_struct_layout(type, definition, depth);
    default:
      return {};
  }
}

TypeLayout Module::compute_array_layout(uint32_t type, const Instruction& definition, uint32_t matrix_stride, int depth) const {
  const TypeLayout element = get_layout(definition[1], matrix_stride, depth + 1);
  TypeLayout array = element;
  if (element.stride != 0 || element.runtime_array) array = {};  // this is an array of arrays
  array.stride = find_decoration(type, ArrayStride).value_or(element.bytes);
  array.runtime_array = definition.op == OpTypeRuntimeArray;
  array.count = array.runtime_array ? 1 : get_constant_value(definition[2]);
  array.bytes = array.runtime_array ? 0 : check_type_bytes(uint64_t{array.stride} * array.count);
  return array;
}

TypeLayout Module::compute_struct_layout(uint32_t type, const Instruction& definition, int depth) const {
  TypeLayout result;
  for (uint32_t member = 0; member + 1 < definition.size(); ++member) {
    const TypeLayout member_layout =
        get_layout(definition[member + 1], find_member_decoration(type, member, MatrixStride).value_or(0), depth + 1);
    const uint64_t offset = find_member_decoration(type, member, Offset).value_or(result.bytes);
    result.bytes = std::max(result.bytes, check_type_bytes(offset + member_layout.bytes));
  }
  return result;
}

}  // namespace pumice::spirv
