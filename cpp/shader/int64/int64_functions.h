// Links the uvec2 functions of shaders/int64_emulation.comp into other modules.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shader/spirv/spirv.h"

namespace pumice::spirv {

// The declarations of a module under construction. Declares each type once if SPIR-V requires it to be unique.
class GlobalSection {
 public:
  explicit GlobalSection(uint32_t bound) : next_id_(bound) {}

  uint32_t new_id() { return next_id_++; }
  uint32_t bound() const { return next_id_; }

  // Returns the id of an existing type, or declares it as `id` (0: a new id).
  uint32_t declare_type(uint16_t op, const std::vector<uint32_t>& operands, uint32_t id = 0);
  uint32_t declare_uint_constant(uint32_t value);  // adds a uint constant
  void add_instruction(uint16_t op, const std::vector<uint32_t>& operands);
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  uint32_t next_id_;
  std::map<std::pair<uint16_t, std::vector<uint32_t>>, uint32_t> types_;
  std::map<uint32_t, uint32_t> constants_;
  std::vector<uint32_t> words_;
};

// Returns whether an operand is a literal rather than an id, for the instructions that GLSL compilers emit.
bool is_literal(const Instruction& instruction, size_t operand);

// Imports functions of int64_emulation.comp into a module, with all functions that they call.
class Int64Functions {
 public:
  explicit Int64Functions(GlobalSection& globals) : globals_(globals) {}

  uint32_t request_function(std::string_view name);  // id of a function such as "pair_add"; throws Error if unknown
  // Returns the definitions of all functions requested so far. `math`: id of the GLSL.std.450 import.
  std::vector<uint32_t> copy_definitions(uint32_t math);

 private:
  uint32_t map_id(uint32_t id, uint32_t math);
  uint32_t copy_declaration(const Instruction& declaration, uint32_t math);
  uint32_t import_function(uint32_t function);

  GlobalSection& globals_;
  std::unordered_map<uint32_t, uint32_t> ids_;  // id in the library module -> id in this module
  std::vector<uint32_t> requested_;             // library functions, in the order of requests
};

}  // namespace pumice::spirv
