#include "shader/int64/int64_functions.h"

#include <memory>
#include <span>

#include "core/error.h"
#include "shader/shader.h"
#include "shader/source/embedded_shaders.h"
#include "shader/spirv/declarations.h"

namespace pumice::spirv {
namespace {

constexpr std::string_view kShader = "int64_emulation.comp";

// The compiled int64_emulation.comp, with its functions by name.
class Int64FunctionLibrary {
 public:
  Int64FunctionLibrary()
      : shader_(compile(std::string(get_embedded_shader(kShader)), std::string(kShader), make_options())),
        all_(parse_instructions(shader_->spirv)) {
    size_t function = 0;
    bool in_function = false;
    for (size_t i = 0; i < all_.size(); ++i) {
      const Instruction& instruction = all_[i];
      if (instruction.op == OpName) names_.emplace(instruction[0], instruction.string_operand(1));
      if (instruction.op == OpExtInstImport) math_ = instruction[0];
      if (instruction.op == OpFunction) function = i, in_function = true;
      if (instruction.op == OpFunctionEnd) bodies_[all_[function][1]] = std::span(all_).subspan(function, i + 1 - function);
      if (in_function) continue;
      if (is_type_declaration(instruction.op)) declarations_[instruction[0]] = &instruction;
      if (instruction.op >= OpConstantTrue && instruction.op <= OpConstantNull) declarations_[instruction[1]] = &instruction;
    }
    for (const auto& [id, body] : bodies_) {
      const std::string_view name = names_.at(id);
      functions_[name.substr(0, name.find('('))] = id;
    }
  }

  uint32_t find_function(std::string_view name) const {
    const auto found = functions_.find(name);
    if (found == functions_.end()) throw Error("there is no function " + std::string(name) + " for pairs of words");
    return found->second;
  }
  std::span<const Instruction> get_body(uint32_t function) const { return bodies_.at(function); }
  bool has_body(uint32_t id) const { return bodies_.contains(id); }
  bool is_math_import(uint32_t id) const { return id == math_; }
  const Instruction* find_declaration(uint32_t id) const {
    const auto found = declarations_.find(id);
    return found == declarations_.end() ? nullptr : found->second;
  }

 private:
  static ShaderOptions make_options() {
    ShaderOptions options;
    options.vulkan_minor = 0;  // emits only instructions that are valid in every SPIR-V version
    return options;
  }

  std::shared_ptr<const Shader> shader_;
  std::vector<Instruction> all_;
  uint32_t math_ = 0;
  std::unordered_map<uint32_t, std::string_view> names_;
  std::unordered_map<uint32_t, std::span<const Instruction>> bodies_;
  std::unordered_map<std::string_view, uint32_t> functions_;
  std::unordered_map<uint32_t, const Instruction*> declarations_;  // types and constants
};

const Int64FunctionLibrary& get_int64_function_library() {
  static const auto* const instance = new Int64FunctionLibrary;  // never destroyed: a thread may still compile at exit
  return *instance;
}

// Returns the index of an image instruction's Image Operands mask, which determines the optional operands.
size_t get_image_operands_index(uint16_t op) {
  constexpr uint16_t kImageWrite = 99, kFirstDref = 89;
  if (op == kImageWrite) return 3;
  const bool has_fifth = op == OpImageGather || op == OpImageGather + 1 || op == kFirstDref || op == kFirstDref + 1 ||
                         op == OpImageSampleProjExplicitLod + 1 || op == OpImageSampleProjExplicitLod + 2;
  return has_fifth ? 5 : 4;
}

}  // namespace

uint32_t GlobalSection::declare_type(uint16_t op, const std::vector<uint32_t>& operands, uint32_t id) {
  const bool may_repeat = op == OpTypeStruct || op == OpTypeArray || op == OpTypeRuntimeArray;
  if (!may_repeat)
    if (const auto found = types_.find({op, operands}); found != types_.end()) return found->second;
  if (id == 0) id = new_id();
  types_.try_emplace({op, operands}, id);
  std::vector<uint32_t> words{id};
  words.insert(words.end(), operands.begin(), operands.end());
  append(words_, op, words);
  return id;
}

uint32_t GlobalSection::declare_uint_constant(uint32_t value) {
  const uint32_t uint = declare_type(OpTypeInt, {32, 0});
  uint32_t& id = constants_[value];
  if (id == 0) append(words_, OpConstant, {uint, id = new_id(), value});
  return id;
}

void GlobalSection::add_instruction(uint16_t op, const std::vector<uint32_t>& operands) {
  append(words_, op, operands);
}

bool is_literal(const Instruction& instruction, size_t operand) {
  constexpr uint16_t kLastOnImages = 99;
  switch (instruction.op) {
    case OpTypeInt:
    case OpTypeFloat:
      return operand > 0;
    case OpTypePointer:
    case OpSelectionMerge:
      return operand == 1;
    case OpTypeVector:
    case OpTypeMatrix:
    case OpFunction:
    case OpVariable:
      return operand == 2;
    case OpExtInst:
    case OpArrayLength:
      return operand == 3;
    case OpLine:
      return operand > 0;
    case OpStore:
    case OpConstant:
    case OpSpecConstant:
    case OpSpecConstantOp:
    case OpLoopMerge:
    case OpSwitch:
      return operand >= 2 && (instruction.op != OpSpecConstantOp || operand == 2);
    case OpLoad:
    case OpCompositeExtract:
    case OpBranchConditional:
      return operand >= 3;
    case OpVectorShuffle:
    case OpCompositeInsert:
      return operand >= 4;
    default:
      return instruction.op >= OpImageSampleImplicitLod && instruction.op <= kLastOnImages &&
             operand == get_image_operands_index(instruction.op);
  }
}

uint32_t Int64Functions::request_function(std::string_view name) {
  return import_function(get_int64_function_library().find_function(name));
}

uint32_t Int64Functions::import_function(uint32_t function) {
  const auto [entry, is_new] = ids_.try_emplace(function, 0);
  if (is_new) {
    entry->second = globals_.new_id();
    requested_.push_back(function);
  }
  return entry->second;
}

uint32_t Int64Functions::copy_declaration(const Instruction& declaration, uint32_t math) {
  std::vector<uint32_t> operands;
  const bool has_type = !is_type_declaration(declaration.op);
  for (size_t i = 0; i < declaration.size(); ++i) {
    if (i == (has_type ? 1u : 0u)) continue;
    operands.push_back(is_literal(declaration, i) ? declaration[i] : map_id(declaration[i], math));
  }
  if (!has_type) return globals_.declare_type(declaration.op, operands);
  const uint32_t id = globals_.new_id();
  operands.insert(operands.begin() + 1, id);
  globals_.add_instruction(declaration.op, operands);
  return id;
}

uint32_t Int64Functions::map_id(uint32_t id, uint32_t math) {
  if (get_int64_function_library().is_math_import(id)) return math;
  if (get_int64_function_library().has_body(id)) return import_function(id);
  if (const auto known = ids_.find(id); known != ids_.end()) return known->second;
  const Instruction* const declaration = get_int64_function_library().find_declaration(id);
  const uint32_t mapped_id = declaration ? copy_declaration(*declaration, math) : globals_.new_id();
  return ids_[id] = mapped_id;
}

std::vector<uint32_t> Int64Functions::copy_definitions(uint32_t math) {
  std::vector<uint32_t> words;
  for (size_t i = 0; i < requested_.size(); ++i)  // map_id() may append to requested_
    for (const auto& instruction : get_int64_function_library().get_body(requested_[i])) {
      std::vector<uint32_t> operands;
      for (size_t k = 0; k < instruction.size(); ++k)
        operands.push_back(is_literal(instruction, k) ? instruction[k] : map_id(instruction[k], math));
      append(words, instruction.op, operands);
    }
  return words;
}

}  // namespace pumice::spirv
