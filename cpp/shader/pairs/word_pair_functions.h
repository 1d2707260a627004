// Functions on pairs of words, which shaders/word_pairs.comp has, as parts of other modules.
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

// The declarations of a module while it is written: types that must not be declared twice are there once.
class GlobalSection {
 public:
  explicit GlobalSection(uint32_t bound) : next_id_(bound) {}

  uint32_t new_id() { return next_id_++; }
  uint32_t bound() const { return next_id_; }

  // The id of such a type: `id` (a new one for 0), or that of the type that is there already.
  uint32_t type(uint16_t op, const std::vector<uint32_t>& operands, uint32_t id = 0);
  uint32_t word(uint32_t value);  // a constant of type uint
  void add(uint16_t op, const std::vector<uint32_t>& operands);
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  uint32_t next_id_;
  std::map<std::pair<uint16_t, std::vector<uint32_t>>, uint32_t> types_;
  std::map<uint32_t, uint32_t> constants_;
  std::vector<uint32_t> words_;
};

// Whether an operand is a number and not the id of something; of the instructions that compilers of GLSL write.
bool is_literal(const Instruction& instruction, size_t operand);

// The functions of word_pairs.comp that a module calls, and those that they call.
class PairFunctions {
 public:
  explicit PairFunctions(GlobalSection& globals) : globals_(globals) {}

  uint32_t id_of(std::string_view name);  // "pair_add"; throws Error where there is none
  // The functions asked for so far. `math`: the id of the set of instructions GLSL.std.450.
  std::vector<uint32_t> definitions(uint32_t math);

 private:
  uint32_t here(uint32_t id, uint32_t math);
  uint32_t declared_here(const Instruction& declaration, uint32_t math);
  uint32_t function_here(uint32_t function);

  GlobalSection& globals_;
  std::unordered_map<uint32_t, uint32_t> ids_;  // the functions' module's -> here
  std::vector<uint32_t> wanted_;                // functions, in the order in which they were asked for
};

}  // namespace pumice::spirv
