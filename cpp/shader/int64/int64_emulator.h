// The SPIR-V pass that implements emulate_int64().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shader/int64/int64_functions.h"
#include "shader/spirv/declarations.h"
#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// Names an unsupported use of 64-bit integers for an error message.
std::string describe_unsupported_use(uint16_t op);

class Int64Emulator {
 public:
  Int64Emulator(std::span<const uint32_t> words, const std::map<uint32_t, uint64_t>& constants);

  std::vector<uint32_t> run();
  const std::set<std::string>& unsupported_uses() const { return unsupported_; }  // unsupported uses of 64-bit integers

 private:
  void record_types(const Instruction& instruction);
  void rewrite_declaration(const Instruction& instruction);
  void declare_type(const Instruction& instruction);
  void declare_constant(const Instruction& instruction);
  void declare_constant_expression(const Instruction& instruction);
  uint32_t get_width(uint32_t type) const;                               // width in bits of an integer type; 1 for bool, 0 for other types
  std::optional<uint64_t> find_constant_value(uint32_t constant) const;  // value of an integer or bool constant; nullopt if unknown
  std::optional<uint64_t> evaluate_constant(const Instruction& instruction) const;
  void rewrite_instruction(const Instruction& instruction);
  bool rewrite_arithmetic(const Instruction& instruction);
  bool rewrite_comparison(const Instruction& instruction);
  bool rewrite_conversion(const Instruction& instruction);
  bool rewrite_math_call(const Instruction& instruction);
  void convert_to_int64(const Instruction& instruction);
  void convert_from_int64(const Instruction& instruction);
  bool is_retained(const Instruction& instruction) const;

  // Vectors of 64-bit integers become arrays of pairs if they are in memory or inside other types, and separate values otherwise.
  bool is_int64_vector(uint32_t type) const {
    const auto& definition = module_.definition(type);
    return definition.op == OpTypeVector && is_int64(definition[1]);
  }
  bool is_int64_vector_value(uint32_t id) const {
    const auto type = types_of_values_.find(id);
    return type != types_of_values_.end() && is_int64_vector(type->second);
  }
  bool uses_int64_vectors(const Instruction& instruction) const;
  uint32_t get_pair_array_type(uint32_t vector, bool explicit_layout);
  uint32_t get_member_type(uint32_t container, size_t operand);
  bool contains_int64_vectors(uint32_t type) const;
  void check_pointer_type(const Instruction& pointer);
  uint32_t get_pointee_type(uint32_t pointer_type);
  uint32_t get_value_type(uint32_t value) const;  // throws ShaderCompileError if it has no type
  std::vector<uint32_t> get_components(uint32_t vector);
  uint32_t get_component(uint32_t vector, size_t k);
  uint32_t build_array(uint32_t vector, uint32_t array_type);
  void extract_components(uint32_t array, uint32_t vector);
  void record_constant_vector(const Instruction& instruction);
  void rewrite_vectors(const Instruction& instruction);
  void rewrite_construct(const Instruction& instruction);
  void rewrite_extract(const Instruction& instruction);
  void rewrite_insert(const Instruction& instruction);
  void rewrite_extract_dynamic(const Instruction& instruction);
  void rewrite_shuffle(const Instruction& instruction);
  void rewrite_phi(const Instruction& instruction);
  void rewrite_by_components(const Instruction& instruction);

  bool is_int64(uint32_t type) const {
    const auto& definition = module_.definition(type);
    return definition.op == OpTypeInt && definition[1] == 64;
  }
  bool is_int64_value(uint32_t id) const {
    const auto type = types_of_values_.find(id);
    return type != types_of_values_.end() && is_int64(type->second);
  }
  bool has_type(const Instruction& instruction) const { return instruction.size() > 1 && types_.contains(instruction[0]); }
  bool uses_int64(const Instruction& instruction) const;
  uint32_t get_replacement_type(uint32_t type) const {
    const auto found = type_replacements_.find(type);
    return found == type_replacements_.end() ? type : found->second;
  }

  void emit(uint16_t op, const std::vector<uint32_t>& operands) { append(body_, op, operands); }
  void emit_retyped(const Instruction& instruction);
  uint32_t emit_result(uint16_t op, uint32_t type, std::initializer_list<uint32_t> operands, uint32_t result = 0);
  uint32_t emit_call(std::string_view function, uint32_t type, std::initializer_list<uint32_t> arguments, uint32_t result = 0);
  uint32_t declare_float(uint32_t width) { return globals_.declare_type(OpTypeFloat, {width}); }
  uint32_t declare_bool() { return globals_.declare_type(OpTypeBool, {}); }
  uint32_t declare_bool_pair() { return globals_.declare_type(OpTypeVector, {declare_bool(), 2}); }
  uint32_t emit_low_word(uint32_t pair, uint32_t result = 0) { return emit_result(OpCompositeExtract, uint_, {pair, 0}, result); }
  uint32_t emit_conversion_to_uint(uint32_t integer);

  std::span<const uint32_t> words_;
  Module module_;
  const std::map<uint32_t, uint64_t>& constants_;
  GlobalSection globals_;
  Int64Functions functions_;
  uint32_t uint_ = 0, pair_ = 0, math_ = 0;
  std::unordered_set<uint32_t> types_;
  std::unordered_map<uint32_t, uint32_t> types_of_values_, type_replacements_;  // value -> its type; type -> its replacement
  std::unordered_set<uint32_t> replaced_results_,
      folded_spec_constants_;  // results of replaced instructions; specialization constants turned into constants
  std::map<std::pair<uint32_t, bool>, uint32_t> arrays_;            // array types that replace vectors, by (length, has explicit layout)
  std::unordered_map<uint32_t, std::vector<uint32_t>> components_;  // vector -> the pairs that replace its components
  std::vector<uint32_t> annotations_, body_;
  mutable std::unordered_map<uint32_t, std::optional<uint64_t>> expression_values_;  // values of OpSpecConstantOp
  std::set<std::string> unsupported_;
};

}  // namespace pumice::spirv
