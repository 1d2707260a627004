#include "shader/spirv/declarations.h"

#include "core/error.h"

namespace pumice::spirv {

void append(std::vector<uint32_t>& words, uint16_t op, const std::vector<uint32_t>& operands) {
  if (operands.size() >= UINT16_MAX)
    throw ShaderCompileError("instruction " + std::to_string(op) + " has " + std::to_string(operands.size()) +
                             " operands: expected fewer than 65535");
  words.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
  words.insert(words.end(), operands.begin(), operands.end());
}

Declarations::Declarations(const Module& module, uint32_t bound) : next_id_(bound) {
  bool in_function = false;
  for (const auto& instruction : module.instructions()) {
    const uint16_t op = instruction.op;
    in_function = in_function || op == OpFunction;
    if (is_type_declaration(op)) {
      std::vector<uint32_t> key{op};
      key.insert(key.end(), instruction.operands.begin() + 1, instruction.operands.end());
      types_.emplace(std::move(key), instruction[0]);
      type_ids_.insert(instruction[0]);
      global_.insert(instruction[0]);
    } else if (instruction.size() > 1 && type_ids_.contains(instruction[0]) && op != OpName && op != OpMemberName && op != OpDecorate &&
               op != OpMemberDecorate) {
      types_of_values_[instruction[1]] = instruction[0];
      if (!in_function) global_.insert(instruction[1]);
    }
  }
}

uint32_t Declarations::get_value_type(uint32_t id) const {
  const auto found = types_of_values_.find(id);
  if (found == types_of_values_.end()) throw ShaderCompileError("malformed SPIR-V: %" + std::to_string(id) + " has no type");
  return found->second;
}

uint32_t Declarations::declare_type(uint16_t op, const std::vector<uint32_t>& operands) {
  std::vector<uint32_t> key{op};
  key.insert(key.end(), operands.begin(), operands.end());
  const auto [entry, is_new] = types_.emplace(std::move(key), next_id_);
  if (!is_new) return entry->second;
  const uint32_t id = new_id();
  std::vector<uint32_t> words{id};
  words.insert(words.end(), operands.begin(), operands.end());
  append(added_, op, words);
  type_ids_.insert(id);
  global_.insert(id);
  return id;
}

uint32_t Declarations::declare_constant(uint32_t value) {
  const uint32_t uint = declare_type(OpTypeInt, {32, 0});
  uint32_t& id = constants_[value];
  if (id != 0) return id;
  id = new_id();
  append(added_, OpConstant, {uint, id, value});
  types_of_values_[id] = uint;
  global_.insert(id);
  return id;
}

uint32_t Declarations::declare_null_constant(uint32_t type) {
  uint32_t& id = nulls_[type];
  if (id != 0) return id;
  id = new_id();
  append(added_, OpConstantNull, {type, id});
  types_of_values_[id] = type;
  global_.insert(id);
  return id;
}

std::vector<uint32_t> Declarations::assemble_module(std::vector<uint32_t> head, const std::vector<uint32_t>& functions) const {
  head.insert(head.end(), added_.begin(), added_.end());
  head.insert(head.end(), functions.begin(), functions.end());
  head[kBoundWord] = next_id_;
  return head;
}

}  // namespace pumice::spirv
