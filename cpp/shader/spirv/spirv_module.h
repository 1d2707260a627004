// Indexes a SPIR-V module by id: types, constants, names and decorations.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shader/preamble/scalar_type.h"
#include "shader/spirv/memory_layout.h"
#include "shader/spirv/spirv.h"

namespace pumice::spirv {

inline constexpr int kMaxTypeDepth = 16;     // maximum nesting of types in memory
inline constexpr int kMaxTypeNesting = 256;  // maximum nesting of any types

// Size and element type of a type in memory.
struct TypeLayout {
  ScalarType scalar = ScalarType::other;
  uint32_t components = 1;
  uint32_t count = 1;   // array elements
  uint32_t bytes = 0;   // 0: a runtime array
  uint32_t stride = 0;  // bytes between array elements
  bool runtime_array = false;
};

// An index of a module's instructions; the module's words must outlive it. Every failed lookup throws ShaderCompileError. A type is defined
// after its components, so recursion terminates; pointers may be an exception.
class Module {
 public:
  explicit Module(std::span<const uint32_t> words);

  const std::vector<Instruction>& instructions() const { return instructions_; }
  const Instruction& definition(uint32_t id) const;
  const Instruction& find_definition_before(const Instruction& user, uint32_t id) const;  // throws if the definition comes later
  std::string name(uint32_t id) const;                                                    // empty if stripped
  std::string member_name(uint32_t type, uint32_t member) const;
  bool has_decoration(uint32_t id, Decoration decoration) const { return find_decoration(id, decoration).has_value(); }
  std::optional<uint32_t> find_decoration(uint32_t id, Decoration decoration) const;
  std::optional<uint32_t> find_member_decoration(uint32_t type, uint32_t member, Decoration decoration) const;

  // Returns the layout of a type in memory. `matrix_stride`: the MatrixStride decoration of the structure member with this type.
  TypeLayout get_layout(uint32_t type, uint32_t matrix_stride = 0, int depth = 0) const;
  // Returns the layout of a type including structure members; null if there are more than 4,096.
  std::shared_ptr<const MemoryLayout> get_memory_layout(uint32_t type) const;
  std::shared_ptr<const MemoryLayout> get_member_layout(uint32_t type, uint32_t member) const;
  uint32_t get_constant_value(
      uint32_t id) const;  // value of a 32-bit (specialization) constant, or default value of an expression of such constants

 private:
  void index_instruction(const Instruction& instruction);
  void add_definition(uint32_t id, const Instruction& instruction);
  void check_type(const Instruction& type);
  int get_nesting_depth(uint32_t component) const;
  TypeLayout compute_layout(uint32_t type, uint32_t matrix_stride, int depth) const;
  TypeLayout compute_struct_layout(uint32_t type, const Instruction& definition, int depth) const;
  TypeLayout compute_array_layout(uint32_t type, const Instruction& definition, uint32_t matrix_stride, int depth) const;

  std::vector<Instruction> instructions_;
  std::unordered_map<uint32_t, const Instruction*> definitions_;
  std::unordered_map<uint32_t, int> nesting_;  // nesting depth of a type; 0 for a pointer declared before its type
  std::unordered_map<uint32_t, std::string> names_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> member_names_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> decorations_;        // (id, decoration) -> first operand or 1
  std::map<std::array<uint32_t, 3>, uint32_t> member_decorations_;       // (type, member, decoration)
  mutable std::map<std::pair<uint32_t, uint32_t>, TypeLayout> layouts_;  // memo, by (type, matrix stride)
};

}  // namespace pumice::spirv
