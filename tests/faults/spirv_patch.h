// A SPIR-V module as a list of instructions, for the layer of driver_bugs.cpp, which replaces some of them. Not part of the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spirv {

// The instructions that the layer reads or writes.
enum Op : uint16_t {
  ext_inst_import = 11,
  ext_inst = 12,
  execution_mode = 16,
  capability = 17,
  type_bool = 20,
  type_int = 21,
  type_float = 22,
  type_vector = 23,
  type_matrix = 24,
  type_array = 28,
  type_runtime_array = 29,
  type_struct = 30,
  type_pointer = 32,
  constant_true = 41,
  constant = 43,
  constant_composite = 44,
  constant_null = 46,
  spec_constant = 50,
  spec_constant_composite = 51,
  function = 54,
  variable = 59,
  load = 61,
  store = 62,
  access_chain = 65,
  in_bounds_access_chain = 66,
  decorate = 71,
  composite_construct = 80,
  composite_insert = 82,
  copy_object = 83,
  convert_f_to_u = 109,
  convert_f_to_s = 110,
  convert_s_to_f = 111,
  convert_u_to_f = 112,
  u_convert = 113,
  s_convert = 114,
  f_convert = 115,
  quantize_to_f16 = 116,
  bitcast = 124,
  i_add = 128,
  f_add = 129,
  i_sub = 130,
  f_sub = 131,
  i_mul = 132,
  f_mul = 133,
  u_div = 134,
  s_div = 135,
  f_div = 136,
  u_mod = 137,
  s_rem = 138,
  s_mod = 139,
  i_add_carry = 149,
  i_sub_borrow = 150,
  u_mul_extended = 151,
  s_mul_extended = 152,
  is_nan = 156,
  logical_and = 167,
  select = 169,
  i_equal = 170,
  u_greater = 172,
  s_less_equal = 179,
  s_less = 177,
  u_less = 176,
  u_less_equal = 178,
  shift_right_logical = 194,
  shift_right_arithmetic = 195,
  shift_left = 196,
  bitwise_or = 197,
  bitwise_xor = 198,
  bitwise_and = 199,
  bit_field_s_extract = 202,
  bit_field_u_extract = 203,
  control_barrier = 224,
  atomic_exchange = 229,
  atomic_compare_exchange = 230,
  atomic_i_add = 234,
  atomic_s_min = 236,
  atomic_u_min = 237,
  atomic_s_max = 238,
  atomic_u_max = 239,
  loop_merge = 246,
  branch_conditional = 250,
  execution_mode_id = 331,
  group_elect = 333,
  group_all = 334,
  group_any = 335,
  group_broadcast = 337,
  group_broadcast_first = 338,
  group_ballot = 339,
  group_ballot_bit_count = 342,
  group_shuffle = 345,
  group_shuffle_xor = 346,
  group_shuffle_up = 347,
  group_shuffle_down = 348,
  group_i_add = 349,
  group_f_add = 350,
  group_s_min = 353,
  group_f_max = 358,
  group_bitwise_xor = 361,
  s_dot = 4450,
  u_dot = 4451,
  s_dot_acc_sat = 4453,
  su_dot_acc_sat = 4455,
  type_matrix_khr = 4456,
  matrix_load_khr = 4457,
  matrix_mul_add_khr = 4459,
  atomic_f_add = 6035,
};

// Instructions of GLSL.std.450.
enum Glsl : uint32_t {
  round_even = 2,
  trunc = 3,
  floor = 8,
  sinh = 19,
  cosh = 20,
  tanh = 21,
  pow = 26,
  exp = 27,
  exp2 = 29,
  sqrt = 31,
  f_min = 37,
  fma = 50,
  pack_half = 58,
  n_max = 80,
};

struct Instruction {
  uint16_t op = 0;
  std::vector<uint32_t> words;  // without the first, which holds the opcode and length
};

using Words = std::initializer_list<uint32_t>;

class Module {
 public:
  Module(const uint32_t* code, size_t size) : header_(code, code + 5) {
    for (size_t at = 5; at < size; at += std::max<uint32_t>(code[at] >> 16, 1))
      instructions_.push_back({static_cast<uint16_t>(code[at] & 0xffff), {code + at + 1, code + at + (code[at] >> 16)}});
    for (const Instruction& one : instructions_) index(one);
  }

  // Replaces instructions of functions: `rewrite` returns whether it emitted another sequence with the same result id.
  template <typename Rewrite>
  void replace(const Rewrite& rewrite) {
    const std::vector<Instruction> given = std::exchange(instructions_, {});
    std::vector<Instruction> body;
    bool in_function = false;
    for (const Instruction& one : given) {
      in_function |= one.op == function;
      if (!in_function) {
        instructions_.push_back(one);
        continue;
      }
      emitted_.clear();
      if (!rewrite(one)) emitted_ = {one};
      body.insert(body.end(), emitted_.begin(), emitted_.end());
    }
    instructions_.insert(instructions_.end(), declared_.begin(), declared_.end());
    instructions_.insert(instructions_.end(), body.begin(), body.end());
    declared_.clear();
  }

  std::vector<uint32_t> code() const {
    std::vector<uint32_t> words = header_;
    for (const Instruction& one : instructions_) {
      words.push_back(static_cast<uint32_t>(one.words.size() + 1) << 16 | one.op);
      words.insert(words.end(), one.words.begin(), one.words.end());
    }
    return words;
  }

  const std::vector<Instruction>& instructions() const { return instructions_; }

  // ---- types and definitions

  const Instruction* definition(uint32_t id) const {
    const auto found = definitions_.find(id);
    return found == definitions_.end() ? nullptr : &found->second;
  }
  uint32_t type_of(uint32_t id) const {
    const Instruction* one = definition(id);
    return one ? one->words[0] : 0;
  }
  uint32_t scalar_of(uint32_t type) const {
    const Instruction* one = definition(type);
    return one && (one->op == type_vector || one->op == type_matrix_khr) ? one->words[1] : type;
  }
  uint32_t components(uint32_t type) const {
    const Instruction* one = definition(type);
    return one && one->op == type_vector ? one->words[2] : 1;
  }
  bool is_float(uint32_t type, uint32_t width) const { return is_scalar(type, type_float, width); }
  bool is_int(uint32_t type, uint32_t width) const { return is_scalar(type, type_int, width); }
  // The kind and width of a type's components; also of a cooperative matrix.
  bool is_scalar(uint32_t type, Op op, uint32_t width) const {
    const Instruction* one = definition(scalar_of(type));
    return one && one->op == op && one->words[1] == width;
  }
  uint32_t bits_of(uint32_t constant_id) const {
    const Instruction* one = definition(constant_id);
    return one && (one->op == constant || one->op == spec_constant) ? one->words[2] : 0;
  }
  // Bytes of a type without padding beside that of vec3 in arrays.
  uint32_t bytes_of(uint32_t type) const {
    const Instruction* one = definition(type);
    if (!one) return 4;
    switch (one->op) {
      case type_int:
      case type_float:
        return one->words[1] / 8;
      case type_vector:
        return bytes_of(one->words[1]) * (one->words[2] == 3 ? 4 : one->words[2]);
      case type_matrix:
        return bytes_of(one->words[1]) * one->words[2];
      case type_array:
        return bytes_of(one->words[1]) * bits_of(one->words[2]);
      case type_struct: {
        uint32_t bytes = 0;
        for (size_t i = 1; i < one->words.size(); ++i) bytes += bytes_of(one->words[i]);
        return bytes;
      }
      default:
        return 4;
    }
  }

  // ---- declarations

  uint32_t declare_type(Op op, const std::vector<uint32_t>& operands) {
    for (const Instruction& one : instructions_)
      if (matches(one, op, operands)) return one.words[0];
    for (const auto& [id, one] : definitions_)
      if (matches(one, op, operands)) return id;
    std::vector<uint32_t> words{fresh()};
    words.insert(words.end(), operands.begin(), operands.end());
    return declare({op, words}), words[0];
  }
  uint32_t uint_type(uint32_t width = 32) { return declare_type(type_int, {width, 0}); }
  uint32_t float_type(uint32_t width) { return declare_type(type_float, {width}); }
  // `scalar`, or a vector of it with as many components as `like`.
  uint32_t shaped(uint32_t scalar, uint32_t like) {
    return components(like) == 1 ? scalar : declare_type(type_vector, {scalar, components(like)});
  }
  // A constant of a scalar or vector type with these bits in each component.
  uint32_t value(uint32_t type, uint64_t bits) {
    const uint32_t scalar = scalar_of(type);
    std::vector<uint32_t> words{scalar, fresh(), static_cast<uint32_t>(bits)};
    if (definition(scalar)->words[1] == 64) words.push_back(static_cast<uint32_t>(bits >> 32));
    declare({constant, words});
    if (components(type) == 1) return words[1];
    std::vector<uint32_t> parts{type, fresh()};
    parts.insert(parts.end(), components(type), words[1]);
    return declare({constant_composite, parts}), parts[1];
  }
  uint32_t null(uint32_t type) {
    const uint32_t id = fresh();
    return declare({constant_null, {type, id}}), id;
  }
  uint32_t true_value(uint32_t type) {
    const uint32_t id = fresh();
    return declare({constant_true, {type, id}}), id;
  }
  void add_capability(uint32_t number) {
    for (const Instruction& one : instructions_)
      if (one.op == capability && one.words[0] == number) return;
    instructions_.insert(instructions_.begin(), {capability, {number}});
  }

  // ---- new instructions, inside replace()

  uint32_t fresh() { return header_[3]++; }
  void put(Instruction one) { index(one), emitted_.push_back(std::move(one)); }
  void put(uint32_t op, uint32_t type, uint32_t result, const std::vector<uint32_t>& operands) {
    std::vector<uint32_t> words{type, result};
    words.insert(words.end(), operands.begin(), operands.end());
    put({static_cast<uint16_t>(op), std::move(words)});
  }
  uint32_t make(uint32_t op, uint32_t type, const std::vector<uint32_t>& operands) {
    const uint32_t id = fresh();
    return put(op, type, id, operands), id;
  }

 private:
  static bool matches(const Instruction& one, Op op, const std::vector<uint32_t>& operands) {
    return one.op == op && one.words.size() == operands.size() + 1 && std::equal(operands.begin(), operands.end(), one.words.begin() + 1);
  }
  void declare(const Instruction& one) { index(one), declared_.push_back(one); }
  // Keeps types by their id, and other instructions with a result type by the id of the result.
  void index(const Instruction& one) {
    if ((one.op >= 19 && one.op <= 38) || one.op == type_matrix_khr)
      definitions_[one.words[0]] = one, types_.push_back(one.words[0]);
    else if (one.op > 38 && one.op != decorate && one.words.size() >= 2 && is_type(one.words[0]))
      definitions_[one.words[1]] = one;
  }
  bool is_type(uint32_t id) const { return std::find(types_.begin(), types_.end(), id) != types_.end(); }

  std::vector<uint32_t> header_;
  std::vector<Instruction> instructions_, declared_, emitted_;
  std::unordered_map<uint32_t, Instruction> definitions_;
  std::vector<uint32_t> types_;
};

}  // namespace spirv
