#include <algorithm>

#include "core/error.h"
#include "shader/int64/int64_emulator.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kPairBytes = 8;

bool has_explicit_layout(uint32_t storage) {
  return storage == kUniform || storage == kPushConstant || storage == kStorageBuffer;
}

}  // namespace

bool Int64Emulator::uses_int64_vectors(const Instruction& instruction) const {
  if (arrays_.empty()) return false;
  if (has_type(instruction) && is_int64_vector(instruction[0])) return true;
  for (size_t i = 0; i < instruction.size(); ++i)
    if (!is_literal(instruction, i) && is_int64_vector_value(instruction[i])) return true;
  return false;
}

// --- Types

// Returns the array of pairs that replaces a vector. SPIR-V requires an ArrayStride in explicitly laid out memory and forbids it elsewhere.
uint32_t Int64Emulator::get_pair_array_type(uint32_t vector, bool explicit_layout) {
  const uint32_t length = module_.definition(vector)[2];
  uint32_t& id = arrays_[{length, explicit_layout}];
  if (id != 0) return id;
  id = globals_.declare_type(OpTypeArray, {pair_, globals_.declare_uint_constant(length)}, globals_.new_id());
  if (explicit_layout) append(annotations_, OpDecorate, {id, ArrayStride, kPairBytes});
  return id;
}

// Returns the rewritten type of operand `operand` of a type declaration.
uint32_t Int64Emulator::get_member_type(uint32_t container, size_t operand) {
  const Instruction& declaration = module_.definition(container);
  const uint32_t member = declaration[operand];
  if (!types_.contains(member) || !is_int64_vector(member)) return get_replacement_type(member);
  switch (declaration.op) {
    case OpTypeStruct:
      return get_pair_array_type(member, module_.find_member_decoration(container, static_cast<uint32_t>(operand) - 1, Offset).has_value());
    case OpTypeArray:
    case OpTypeRuntimeArray:
      return get_pair_array_type(member, module_.has_decoration(container, ArrayStride));
    case OpTypePointer:
      return get_pair_array_type(member, has_explicit_layout(declaration[1]));
    default:
      return get_pair_array_type(member, false);
  }
}

bool Int64Emulator::contains_int64_vectors(uint32_t type) const {
  const Instruction& declaration = module_.definition(type);
  switch (declaration.op) {
    case OpTypeVector:
      return is_int64_vector(type);
    case OpTypeArray:
    case OpTypeRuntimeArray:
      return contains_int64_vectors(declaration[1]);
    case OpTypeStruct:
      return std::ranges::any_of(declaration.operands.subspan(1), [&](uint32_t member) { return contains_int64_vectors(member); });
    default:
      return false;
  }
}

// Records vectors of 64-bit integers in uniform blocks as unsupported: there, arrays need a stride of 16 bytes.
void Int64Emulator::check_pointer_type(const Instruction& pointer) {
  if (pointer[1] == kUniform && module_.has_decoration(pointer[2], Block) && contains_int64_vectors(pointer[2]))
    unsupported_.insert("vectors of 64-bit integers in uniform blocks");
}

uint32_t Int64Emulator::get_pointee_type(uint32_t pointer_type) {
  return get_member_type(pointer_type, 2);
}

// --- Values

// Returns the ids of the pairs that replace a vector's components. They may be allocated before they are defined.
std::vector<uint32_t> Int64Emulator::get_components(uint32_t vector) {
  const auto [entry, is_new] = components_.try_emplace(vector);
  if (is_new) {
    const auto& type = module_.definition(get_value_type(vector));
    for (uint32_t k = 0; k < type[2]; ++k) {
      entry->second.push_back(globals_.new_id());
      types_of_values_[entry->second.back()] = type[1];
    }
  }
  return components_.at(vector);
}

// Returns component `k` of a vector. Throws ShaderCompileError if the vector is too short.
uint32_t Int64Emulator::get_component(uint32_t vector, size_t k) {
  const auto all = get_components(vector);
  if (k >= all.size())
    throw ShaderCompileError("malformed SPIR-V: component " + std::to_string(k) + " of a vector of " + std::to_string(all.size()));
  return all[k];
}

uint32_t Int64Emulator::build_array(uint32_t vector, uint32_t array_type) {
  std::vector<uint32_t> words{array_type, globals_.new_id()};
  for (const uint32_t component : get_components(vector)) words.push_back(component);
  emit(OpCompositeConstruct, words);
  return words[1];
}

void Int64Emulator::extract_components(uint32_t array, uint32_t vector) {
  uint32_t k = 0;
  for (const uint32_t component : get_components(vector)) emit(OpCompositeExtract, {pair_, component, array, k++});
}

void Int64Emulator::record_constant_vector(const Instruction& instruction) {
  const uint32_t id = instruction[1];
  if (instruction.op == OpConstantNull || instruction.op == OpUndef) {
    for (const uint32_t component : get_components(id)) globals_.add_instruction(instruction.op, {pair_, component});
    return;
  }
  components_[id].assign(instruction.operands.begin() + 2, instruction.operands.end());
}

// --- Instructions

void Int64Emulator::rewrite_vectors(const Instruction& instruction) {
  switch (instruction.op) {
    case OpFunction:
    case OpVariable:
      return emit_retyped(instruction);
    case OpFunctionParameter:
      unsupported_.insert("constant parameters that are vectors of 64-bit integers");
      return;
    case OpLoad: {
      std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
      operands[0] = get_pointee_type(get_value_type(instruction[2]));
      operands[1] = globals_.new_id();
      emit(OpLoad, operands);
      return extract_components(operands[1], instruction[1]);
    }
    case OpStore: {
      std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
      operands[1] = build_array(instruction[1], get_pointee_type(get_value_type(instruction[0])));
      return emit(OpStore, operands);
    }
    case OpFunctionCall: {
      std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
      operands[0] = get_replacement_type(instruction[0]);
      operands[1] = globals_.new_id();
      emit(OpFunctionCall, operands);
      return extract_components(operands[1], instruction[1]);
    }
    case OpReturnValue:
      return emit(OpReturnValue, {build_array(instruction[0], get_replacement_type(get_value_type(instruction[0])))});
    case OpUndef:
      for (const uint32_t component : get_components(instruction[1])) emit(OpUndef, {pair_, component});
      return;
    case OpPhi:
      return rewrite_phi(instruction);
    case OpVectorShuffle:
      return rewrite_shuffle(instruction);
    case OpCompositeConstruct:
      return rewrite_construct(instruction);
    case OpCompositeExtract:
      return rewrite_extract(instruction);
    case OpCompositeInsert:
      return rewrite_insert(instruction);
    case OpVectorExtractDynamic:
      return rewrite_extract_dynamic(instruction);
    default:
      return rewrite_by_components(instruction);
  }
}

void Int64Emulator::rewrite_phi(const Instruction& instruction) {
  const auto results = get_components(instruction[1]);
  for (size_t k = 0; k < results.size(); ++k) {
    std::vector<uint32_t> words{pair_, results[k]};
    for (size_t i = 2; i + 1 < instruction.size(); i += 2)
      words.insert(words.end(), {get_component(instruction[i], k), instruction[i + 1]});
    emit(OpPhi, words);
  }
}

void Int64Emulator::rewrite_shuffle(const Instruction& instruction) {
  constexpr uint32_t kAny = 0xffffffff;
  const auto results = get_components(instruction[1]);
  const size_t first = get_components(instruction[2]).size();
  for (size_t k = 0; k < results.size(); ++k) {
    const size_t index = instruction[4 + k] == kAny ? 0 : instruction[4 + k];
    emit(OpCopyObject,
         {pair_, results[k], index < first ? get_component(instruction[2], index) : get_component(instruction[3], index - first)});
  }
}

void Int64Emulator::rewrite_construct(const Instruction& instruction) {
  std::vector<uint32_t> words{get_replacement_type(instruction[0]), instruction[1]};
  const bool is_struct = module_.definition(instruction[0]).op == OpTypeStruct, is_vector_result = is_int64_vector(instruction[0]);
  for (size_t i = 2; i < instruction.size(); ++i) {
    if (!is_int64_vector_value(instruction[i])) {
      words.push_back(instruction[i]);
    } else if (is_vector_result) {
      const auto more = get_components(instruction[i]);
      words.insert(words.end(), more.begin(), more.end());
    } else {
      words.push_back(build_array(instruction[i], get_member_type(instruction[0], is_struct ? i - 1 : 1)));
    }
  }
  if (!is_vector_result) return emit(OpCompositeConstruct, words);
  const auto results = get_components(instruction[1]);
  if (words.size() != results.size() + 2) throw ShaderCompileError("malformed SPIR-V: a vector of too few or too many components");
  for (size_t k = 0; k < results.size(); ++k) emit(OpCopyObject, {pair_, results[k], words[k + 2]});
}

void Int64Emulator::rewrite_extract(const Instruction& instruction) {
  if (is_int64_vector_value(instruction[2]))
    return emit(OpCopyObject, {pair_, instruction[1], get_component(instruction[2], instruction[3])});
  std::vector<uint32_t> words(instruction.operands.begin(), instruction.operands.end());
  words.push_back(0);
  words[0] = pair_;
  for (const uint32_t component : get_components(instruction[1])) {
    words[1] = component;
    emit(OpCompositeExtract, words);
    ++words.back();
  }
}

void Int64Emulator::rewrite_insert(const Instruction& instruction) {
  if (is_int64_vector_value(instruction[3])) {
    const auto results = get_components(instruction[1]);
    for (uint32_t k = 0; k < results.size(); ++k)
      emit(OpCopyObject, {pair_, results[k], k == instruction[4] ? instruction[2] : get_component(instruction[3], k)});
    return;
  }
  uint32_t into = instruction[3];
  std::vector<uint32_t> words{get_replacement_type(instruction[0]), 0, 0, into};
  for (size_t i = 4; i < instruction.size(); ++i) words.push_back(instruction[i]);
  words.push_back(0);
  const auto inserted = get_components(instruction[2]);
  for (size_t k = 0; k < inserted.size(); ++k) {
    words[1] = k + 1 == inserted.size() ? instruction[1] : globals_.new_id();
    words[2] = inserted[k];
    words[3] = into;
    emit(OpCompositeInsert, words);
    into = words[1];
    ++words.back();
  }
}

void Int64Emulator::rewrite_extract_dynamic(const Instruction& instruction) {
  const auto from = get_components(instruction[2]);
  const uint32_t index = emit_conversion_to_uint(instruction[3]);
  uint32_t found = get_component(instruction[2], 0);
  for (uint32_t k = 1; k < from.size(); ++k) {
    const uint32_t is_it = emit_result(OpIEqual, declare_bool(), {index, globals_.declare_uint_constant(k)});
    const uint32_t mask = emit_result(OpCompositeConstruct, declare_bool_pair(), {is_it, is_it});
    found = emit_result(OpSelect, pair_, {mask, from[k], found}, k + 1 == from.size() ? instruction[1] : 0);
  }
}

// Rewrites a vector instruction as one instruction per component.
void Int64Emulator::rewrite_by_components(const Instruction& instruction) {
  const auto* result_type = has_type(instruction) ? &module_.definition(instruction[0]) : nullptr;
  const auto length_of = [&](uint32_t id) -> uint32_t {
    const auto type = types_of_values_.find(id);
    if (type == types_of_values_.end()) return 0;
    const auto& definition = module_.definition(type->second);
    return definition.op == OpTypeVector ? definition[2] : 0;
  };
  const uint32_t length = result_type && result_type->op == OpTypeVector ? (*result_type)[2] : 0;
  for (size_t i = 0; i < instruction.size(); ++i)
    if (length == 0 || (!is_literal(instruction, i) && length_of(instruction[i]) != 0 && length_of(instruction[i]) != length)) {
      unsupported_.insert("vectors in " + describe_unsupported_use(instruction.op));
      return;
    }
  const bool is_int64_result = is_int64((*result_type)[1]);
  std::vector<uint32_t> results;
  for (uint32_t k = 0; k < length; ++k) {
    results.push_back(is_int64_result ? get_component(instruction[1], k) : globals_.new_id());
    types_of_values_[results[k]] = (*result_type)[1];
    std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
    operands[0] = (*result_type)[1];
    operands[1] = results[k];
    for (size_t i = 2; i < operands.size(); ++i) {
      if (is_literal(instruction, i) || length_of(operands[i]) == 0) continue;
      if (is_int64_vector_value(operands[i])) {
        operands[i] = get_component(operands[i], k);
        continue;
      }
      const uint32_t type = module_.definition(get_value_type(operands[i]))[1];
      operands[i] = emit_result(OpCompositeExtract, get_replacement_type(type), {operands[i], k});
      types_of_values_[operands[i]] = type;
    }
    rewrite_instruction({instruction.op, operands});
  }
  if (is_int64_result) return;
  std::vector<uint32_t> words{get_replacement_type(instruction[0]), instruction[1]};
  words.insert(words.end(), results.begin(), results.end());
  emit(OpCompositeConstruct, words);
}

}  // namespace pumice::spirv
