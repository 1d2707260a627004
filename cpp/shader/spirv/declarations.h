// Finds a module's types and constants by content, and declares missing ones.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// Appends one instruction. Throws ShaderCompileError if it is longer than SPIR-V allows.
void append(std::vector<uint32_t>& words, uint16_t op, const std::vector<uint32_t>& operands);

class Declarations {
 public:
  Declarations(const Module& module, uint32_t bound);

  uint32_t new_id() { return next_id_++; }

  bool is_global(uint32_t id) const { return global_.contains(id); }  // whether it is defined outside functions
  uint32_t get_value_type(uint32_t id) const;  // type of any id with a result; throws ShaderCompileError if it has none

  // Returns the id of a type, declaring it if necessary: SPIR-V forbids duplicates except for arrays and structures.
  uint32_t declare_type(uint16_t op, const std::vector<uint32_t>& operands);
  uint32_t declare_constant(uint32_t value);      // a constant of type uint
  uint32_t declare_null_constant(uint32_t type);  // OpConstantNull

  // Assembles the module: the header and declarations, the declarations added here, and the functions.
  std::vector<uint32_t> assemble_module(std::vector<uint32_t> head, const std::vector<uint32_t>& functions) const;

 private:
  uint32_t next_id_;
  std::map<std::vector<uint32_t>, uint32_t> types_;  // keyed by opcode and operands
  std::set<uint32_t> type_ids_, global_;
  std::unordered_map<uint32_t, uint32_t> types_of_values_;
  std::map<uint32_t, uint32_t> constants_, nulls_;
  std::vector<uint32_t> added_;
};

}  // namespace pumice::spirv
