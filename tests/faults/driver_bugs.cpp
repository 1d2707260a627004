// A Vulkan layer that gives a correct driver one bug, for tests of the driver trial. Not part of the engine.
//
// PUMICE_TEST_DRIVER_BUG names the bug, as "name" or "name:parameter". The layer reads it at every call, so a process can go from one bug
// to the next. Bugs of the shader compiler change the SPIR-V in vkCreateShaderModule; the others change what the device reports, what is
// recorded, or what is submitted. tests/support/driver_bugs.py lists the bugs with their sources.
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spirv_patch.h"

namespace {

// ---- the bug

struct Bug {
  std::string name, parameter;
  explicit operator bool() const { return !name.empty(); }
  bool is(const char* other) const { return name == other; }
  uint32_t number(uint32_t otherwise) const {
    const uint32_t given = static_cast<uint32_t>(std::strtoul(parameter.c_str(), nullptr, 10));
    return given ? given : otherwise;
  }
};

Bug current_bug() {
  const char* text = std::getenv("PUMICE_TEST_DRIVER_BUG");
  const std::string all = text ? text : "";
  const size_t colon = all.find(':');
  return {all.substr(0, colon), colon == std::string::npos ? std::string() : all.substr(colon + 1)};
}

// ---- bugs of the shader compiler

using spirv::Instruction;
using spirv::Module;

struct Patch {
  Module& module;
  Bug bug;
  uint32_t subgroup_size;
  std::vector<uint32_t> loop_conditions;  // the ids of what ends loops
  uint32_t number(uint32_t otherwise) const { return bug.number(otherwise); }
};

// The ids of conditions that end loops; all loops, or those marked for unrolling.
std::vector<uint32_t> loop_conditions(const Module& module, bool all) {
  std::vector<uint32_t> found;
  bool waiting = false;
  for (const Instruction& one : module.instructions()) {
    if (one.op == spirv::loop_merge) waiting = all || (one.words[2] & 1) != 0;
    if (one.op == spirv::branch_conditional && std::exchange(waiting, false)) found.push_back(one.words[0]);
  }
  return found;
}

// Emits a sequence for the instruction and returns true, or returns false to keep it.
using Rewrite = bool (*)(Patch& patch, const Instruction& one);

// The result is operand `index`.
bool copied(Patch& patch, const Instruction& one, size_t index) {
  patch.module.put(spirv::copy_object, one.words[0], one.words[1], {one.words[index]});
  return true;
}

bool with_op(Patch& patch, const Instruction& one, uint16_t op) {
  patch.module.put({op, one.words});
  return true;
}

bool swapped(Patch& patch, const Instruction& one, uint16_t a, uint16_t b) {
  return (one.op == a || one.op == b) && with_op(patch, one, one.op == a ? b : a);
}

// The unsigned operation instead; its result type has to be unsigned in a valid module.
uint32_t make_unsigned(Module& module, uint16_t op, uint32_t type, std::vector<uint32_t> operands) {
  const uint32_t other = module.shaped(module.uint_type(module.definition(module.scalar_of(type))->words[1]), type);
  for (uint32_t& operand : operands)
    if (op != spirv::u_convert && module.type_of(operand) != other) operand = module.make(spirv::bitcast, other, {operand});
  const uint32_t result = module.make(op, other, operands);
  return other == type ? result : module.make(spirv::bitcast, type, {result});
}

bool as_unsigned(Patch& patch, const Instruction& one, uint16_t op) {
  const std::vector<uint32_t> operands(one.words.begin() + 2, one.words.end());
  patch.module.put(spirv::copy_object, one.words[0], one.words[1], {make_unsigned(patch.module, op, one.words[0], operands)});
  return true;
}

bool with_operand(Patch& patch, const Instruction& one, size_t index, uint32_t id) {
  Instruction other = one;
  other.words[index] = id;
  patch.module.put(std::move(other));
  return true;
}

bool is_reduction(const Instruction& one) {
  return one.op >= spirv::group_i_add && one.op <= spirv::group_bitwise_xor;
}

bool is_extended(const Instruction& one, uint32_t number) {
  return one.op == spirv::ext_inst && one.words[3] == number;
}

// The bits of a float32 value, without the sign if `absolute`.
uint32_t bits_of(Module& module, uint32_t value, bool absolute = false) {
  const uint32_t type = module.shaped(module.uint_type(), module.type_of(value));
  const uint32_t bits = module.make(spirv::bitcast, type, {value});
  return absolute ? module.make(spirv::bitwise_and, type, {bits, module.value(type, 0x7fffffff)}) : bits;
}

uint32_t bool_like(Module& module, uint32_t type) {
  return module.shaped(module.declare_type(spirv::type_bool, {}), type);
}

// A float32 value with zeros for magnitudes below `least` (as bits).
uint32_t flushed(Module& module, uint32_t value, uint32_t least) {
  const uint32_t type = module.type_of(value), bits_type = module.shaped(module.uint_type(), type);
  const uint32_t bits = bits_of(module, value), absolute = bits_of(module, value, true);
  const uint32_t sign = module.make(spirv::bitwise_and, bits_type, {bits, module.value(bits_type, 0x80000000)});
  const uint32_t small = module.make(spirv::u_less, bool_like(module, type), {absolute, module.value(bits_type, least)});
  return module.make(spirv::bitcast, type, {module.make(spirv::select, bits_type, {small, sign, bits})});
}

// A float32 value with the greatest fp16 number for greater ones and infinity.
uint32_t saturated(Module& module, uint32_t value) {
  const uint32_t type = module.type_of(value), bits_type = module.shaped(module.uint_type(), type), truth = bool_like(module, type);
  const uint32_t bits = bits_of(module, value), absolute = bits_of(module, value, true);
  const uint32_t large = module.make(spirv::u_greater, truth, {absolute, module.value(bits_type, 0x477fe000)});
  const uint32_t number = module.make(spirv::u_less_equal, truth, {absolute, module.value(bits_type, 0x7f800000)});
  const uint32_t over = module.make(spirv::logical_and, truth, {large, number});
  const uint32_t sign = module.make(spirv::bitwise_and, bits_type, {bits, module.value(bits_type, 0x80000000)});
  const uint32_t most = module.make(spirv::bitwise_or, bits_type, {sign, module.value(bits_type, 0x477fe000)});
  return module.make(spirv::bitcast, type, {module.make(spirv::select, bits_type, {over, most, bits})});
}

// Whether the instruction rounds float32 to fp16; `operand` is the index of what it rounds.
bool rounds_to_fp16(const Module& module, const Instruction& one, size_t& operand) {
  operand = one.op == spirv::f_convert ? 2 : 4;
  if (one.op == spirv::f_convert) {
    const Instruction* type = module.definition(module.type_of(one.words[2]));
    return type && type->op != spirv::type_matrix_khr && module.is_float(one.words[0], 16) &&
           module.is_float(module.type_of(one.words[2]), 32);
  }
  return is_extended(one, spirv::pack_half);
}

// The element of a buffer that a pointer refers to: the instruction that makes the pointer, if it indexes an array.
const Instruction* array_element(const Module& module, uint32_t pointer) {
  const Instruction* chain = module.definition(pointer);
  if (!chain || (chain->op != spirv::access_chain && chain->op != spirv::in_bounds_access_chain)) return nullptr;
  const Instruction* pointed = module.definition(module.type_of(chain->words[2]));
  if (!pointed || pointed->op != spirv::type_pointer) return nullptr;
  uint32_t type = pointed->words[2];
  for (size_t i = 3; i + 1 < chain->words.size(); ++i) {
    const Instruction* inside = module.definition(type);
    if (!inside) return nullptr;
    type = inside->op == spirv::type_struct ? inside->words[1 + module.bits_of(chain->words[i])] : inside->words[1];
  }
  const Instruction* last = module.definition(type);
  return last && (last->op == spirv::type_array || last->op == spirv::type_runtime_array) ? chain : nullptr;
}

bool is_in_buffer(const Module& module, uint32_t pointer) {
  const Instruction* type = module.definition(module.type_of(pointer));
  return type && type->op == spirv::type_pointer && (type->words[1] == 12 || type->words[1] == 2);
}

// The pointer to the array element whose index has `cleared` bits cleared; 0 if the pointer is not to an element of a buffer's array of
// this width.
uint32_t aligned_pointer(Module& module, uint32_t pointer, uint32_t width, uint32_t cleared) {
  const Instruction* found = is_in_buffer(module, pointer) ? array_element(module, pointer) : nullptr;
  if (!found) return 0;
  const Instruction chain = *found;
  const uint32_t element = module.definition(chain.words[0])->words[2];
  if (module.components(element) != 1 || !(module.is_int(element, width) || module.is_float(element, width))) return 0;
  Instruction other = chain;
  const uint32_t index = chain.words.back(), type = module.type_of(index);
  other.words.back() = module.make(spirv::bitwise_and, type, {index, module.value(type, ~static_cast<uint64_t>(cleared))});
  other.words[1] = module.fresh();
  const uint32_t made = other.words[1];
  module.put(std::move(other));
  return made;
}

bool stored_elsewhere(Patch& patch, const Instruction& one, uint32_t width, uint32_t cleared) {
  if (one.op != spirv::store) return false;
  const uint32_t pointer = aligned_pointer(patch.module, one.words[0], width, cleared);
  return pointer && with_operand(patch, one, 0, pointer);
}

// A 64-bit operation on the lower halves.
bool in_32_bits(Patch& patch, const Instruction& one, bool is_shift = false) {
  Module& module = patch.module;
  if (!module.is_int(one.words[0], 64)) return false;
  const uint32_t narrow = module.shaped(module.uint_type(), one.words[0]);
  const uint32_t a = module.make(spirv::u_convert, narrow, {one.words[2]});
  uint32_t b = one.words[3];
  if (!is_shift || module.is_int(module.type_of(b), 64)) b = module.make(spirv::u_convert, narrow, {b});
  const uint32_t result = module.make(one.op, narrow, {a, b});
  module.put(spirv::s_convert, one.words[0], one.words[1], {result});
  return true;
}

bool is_int64_comparison(const Module& module, const Instruction& one) {
  return one.op >= spirv::i_equal && one.op <= spirv::s_less_equal && module.is_int(module.type_of(one.words[2]), 64);
}

uint32_t toggled_layout(Module& module, uint32_t layout) {
  return module.value(module.type_of(layout), 1 - (module.bits_of(layout) & 1));
}

const std::unordered_map<std::string, Rewrite>& rewrites() {
  static const std::unordered_map<std::string, Rewrite> all{
      // ---- subgroups
      {"subgroup_add_own",
       [](Patch& patch, const Instruction& one) {
         return (one.op == spirv::group_i_add || one.op == spirv::group_f_add) && one.words[3] == 0 && copied(patch, one, 4);
       }},
      {"subgroup_add_partial",
       [](Patch& patch, const Instruction& one) {  // number: lanes that are added
         if ((one.op != spirv::group_i_add && one.op != spirv::group_f_add) || one.words[3] != 0) return false;
         Module& module = patch.module;
         const uint16_t add = one.op == spirv::group_i_add ? spirv::i_add : spirv::f_add;
         uint32_t sum = one.words[4];
         for (uint32_t step = 1; step < patch.number(patch.subgroup_size / 2); step *= 2) {
           const uint32_t mask = module.value(module.uint_type(), step);
           const uint32_t other = module.make(spirv::group_shuffle_xor, one.words[0], {one.words[2], sum, mask});
           sum = module.make(add, one.words[0], {sum, other});
         }
         module.put(spirv::copy_object, one.words[0], one.words[1], {sum});
         return true;
       }},
      {"subgroup_scan",
       [](Patch& patch, const Instruction& one) {  // inclusive as exclusive
         if (!is_reduction(one) || one.words[3] != 1) return false;
         Instruction other = one;
         other.words[3] = 2;
         patch.module.put(std::move(other));
         return true;
       }},
      {"subgroup_max_own",
       [](Patch& patch, const Instruction& one) {
         return one.op >= spirv::group_s_min && one.op <= spirv::group_f_max && one.words[3] == 0 && copied(patch, one, 4);
       }},
      {"shuffle_own", [](Patch& patch, const Instruction& one) { return one.op == spirv::group_shuffle && copied(patch, one, 3); }},
      {"shuffle_xor_own", [](Patch& patch, const Instruction& one) { return one.op == spirv::group_shuffle_xor && copied(patch, one, 3); }},
      {"shuffle_xor_half",
       [](Patch& patch, const Instruction& one) {  // stays in a half of the subgroup
         if (one.op != spirv::group_shuffle_xor) return false;
         Module& module = patch.module;
         const uint32_t type = module.type_of(one.words[4]);
         const uint32_t mask = module.value(type, patch.subgroup_size / 2 - 1);
         return with_operand(patch, one, 4, module.make(spirv::bitwise_and, type, {one.words[4], mask}));
       }},
      {"shuffle_up_down",
       [](Patch& patch, const Instruction& one) { return swapped(patch, one, spirv::group_shuffle_up, spirv::group_shuffle_down); }},
      {"broadcast_first",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::group_broadcast) return false;
         patch.module.put(spirv::group_broadcast_first, one.words[0], one.words[1], {one.words[2], one.words[3]});
         return true;
       }},
      {"ballot_none",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::group_ballot) return false;
         patch.module.put(spirv::copy_object, one.words[0], one.words[1], {patch.module.null(one.words[0])});
         return true;
       }},
      {"ballot_all",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::group_ballot) return false;
         patch.module.put(spirv::copy_object, one.words[0], one.words[1], {patch.module.value(one.words[0], 0xffffffff)});
         return true;
       }},
      {"ballot_count",
       [](Patch& patch, const Instruction& one) {  // exclusive as inclusive
         if (one.op != spirv::group_ballot_bit_count || one.words[3] != 2) return false;
         Instruction other = one;
         other.words[3] = 1;
         patch.module.put(std::move(other));
         return true;
       }},
      {"elect_all",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::group_elect) return false;
         patch.module.put(spirv::copy_object, one.words[0], one.words[1], {patch.module.true_value(one.words[0])});
         return true;
       }},
      {"vote_own",
       [](Patch& patch, const Instruction& one) {
         return (one.op == spirv::group_all || one.op == spirv::group_any) && copied(patch, one, 3);
       }},

      // ---- integer dot products
      {"dot_sign",
       [](Patch& patch, const Instruction& one) {
         return swapped(patch, one, spirv::s_dot, spirv::u_dot) || swapped(patch, one, spirv::s_dot_acc_sat, spirv::s_dot_acc_sat + 1);
       }},
      {"dot_accumulator",
       [](Patch& patch, const Instruction& one) {
         if (one.op < spirv::s_dot_acc_sat || one.op > spirv::su_dot_acc_sat) return false;
         Instruction other = one;
         other.op = static_cast<uint16_t>(one.op - 3), other.words.erase(other.words.begin() + 4);
         patch.module.put(std::move(other));
         return true;
       }},
      {"dot_three",
       [](Patch& patch, const Instruction& one) {  // leaves out the last of four products
         if (one.op < spirv::s_dot || one.op > spirv::su_dot_acc_sat) return false;
         Module& module = patch.module;
         const uint32_t type = module.type_of(one.words[2]);
         const uint32_t first = module.components(type) == 1
                                    ? module.make(spirv::bitwise_and, type, {one.words[2], module.value(type, 0x00ffffff)})
                                    : module.make(spirv::composite_insert, type, {module.null(module.scalar_of(type)), one.words[2], 3});
         return with_operand(patch, one, 2, first);
       }},

      // ---- 8- and 16-bit storage
      {"store8_word", [](Patch& patch, const Instruction& one) { return stored_elsewhere(patch, one, 8, 3); }},
      {"store16_word", [](Patch& patch, const Instruction& one) { return stored_elsewhere(patch, one, 16, 1); }},
      {"load16_word",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::load) return false;
         const uint32_t pointer = aligned_pointer(patch.module, one.words[2], 16, 1);
         return pointer && with_operand(patch, one, 2, pointer);
       }},
      {"load8_word",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::load) return false;
         const uint32_t pointer = aligned_pointer(patch.module, one.words[2], 8, 3);
         return pointer && with_operand(patch, one, 2, pointer);
       }},
      {"sign_extension",
       [](Patch& patch, const Instruction& one) {  // number: width, 8 or 16
         return one.op == spirv::s_convert && patch.module.is_int(patch.module.type_of(one.words[2]), patch.number(8)) &&
                as_unsigned(patch, one, spirv::u_convert);
       }},

      // ---- fp16
      {"exp16_clamped",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if ((!is_extended(one, spirv::exp) && !is_extended(one, spirv::exp2)) || !module.is_float(one.words[0], 16)) return false;
         const uint32_t result = module.make(spirv::ext_inst, one.words[0], {one.words[2], one.words[3], one.words[4]});
         module.put(spirv::ext_inst, one.words[0], one.words[1], {one.words[2], spirv::f_min, result, module.value(one.words[0], 0x7bff)});
         return true;
       }},
      {"fp16_truncated",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         size_t at = 0;
         if (!rounds_to_fp16(module, one, at)) return false;
         const uint32_t type = module.type_of(one.words[at]), bits_type = module.shaped(module.uint_type(), type);
         const uint32_t kept =
             module.make(spirv::bitwise_and, bits_type, {bits_of(module, one.words[at]), module.value(bits_type, 0xffffe000)});
         return with_operand(patch, one, at, module.make(spirv::bitcast, type, {kept}));
       }},
      {"fp16_flushed",
       [](Patch& patch, const Instruction& one) {
         size_t at = 0;
         return rounds_to_fp16(patch.module, one, at) && with_operand(patch, one, at, flushed(patch.module, one.words[at], 0x38800000));
       }},
      {"fp16_saturated",
       [](Patch& patch, const Instruction& one) {
         size_t at = 0;
         return rounds_to_fp16(patch.module, one, at) && with_operand(patch, one, at, saturated(patch.module, one.words[at]));
       }},

      // ---- float32 and float64
      {"sum_in_fp16",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::f_add || !patch.module.is_float(one.words[0], 32)) return false;
         const uint32_t sum = patch.module.make(spirv::f_add, one.words[0], {one.words[2], one.words[3]});
         patch.module.put(spirv::quantize_to_f16, one.words[0], one.words[1], {sum});
         return true;
       }},
      {"fp32_flushed",
       [](Patch& patch, const Instruction& one) {
         const bool taken = one.op == spirv::f_add || one.op == spirv::f_sub || one.op == spirv::f_mul || one.op == spirv::f_div;
         if (!taken || !patch.module.is_float(one.words[0], 32)) return false;
         const uint32_t result = patch.module.make(one.op, one.words[0], {one.words[2], one.words[3]});
         patch.module.put(spirv::copy_object, one.words[0], one.words[1], {flushed(patch.module, result, 0x00800000)});
         return true;
       }},
      {"fma_unfused",
       [](Patch& patch, const Instruction& one) {
         if (!is_extended(one, spirv::fma)) return false;
         const uint32_t product = patch.module.make(spirv::f_mul, one.words[0], {one.words[4], one.words[5]});
         patch.module.put(spirv::f_add, one.words[0], one.words[1], {product, one.words[6]});
         return true;
       }},
      {"division_rounded_twice",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::f_div || !patch.module.is_float(one.words[0], 32)) return false;
         const uint32_t one_bits = patch.module.value(one.words[0], 0x3f800000);
         const uint32_t inverse = patch.module.make(spirv::f_div, one.words[0], {one_bits, one.words[3]});
         patch.module.put(spirv::f_mul, one.words[0], one.words[1], {one.words[2], inverse});
         return true;
       }},
      {"square_root_inexact",
       [](Patch& patch, const Instruction& one) {
         if (!is_extended(one, spirv::sqrt) || !patch.module.is_float(one.words[0], 32)) return false;
         patch.module.put(spirv::ext_inst, one.words[0], one.words[1],
                          {one.words[2], spirv::pow, one.words[4], patch.module.value(one.words[0], 0x3f000000)});
         return true;
       }},
      {"nan_unseen",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::is_nan) return false;
         patch.module.put(spirv::copy_object, one.words[0], one.words[1], {patch.module.null(one.words[0])});
         return true;
       }},
      {"exp_of_nan",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if ((!is_extended(one, spirv::exp) && !is_extended(one, spirv::exp2)) || !module.is_float(one.words[0], 32)) return false;
         const uint32_t least = module.value(one.words[0], 0xff7fffff);
         return with_operand(patch, one, 4, module.make(spirv::ext_inst, one.words[0], {one.words[2], spirv::n_max, one.words[4], least}));
       }},
      {"tanh_overflow",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if (!is_extended(one, spirv::tanh)) return false;
         const uint32_t over = module.make(spirv::ext_inst, one.words[0], {one.words[2], spirv::sinh, one.words[4]});
         const uint32_t under = module.make(spirv::ext_inst, one.words[0], {one.words[2], spirv::cosh, one.words[4]});
         module.put(spirv::f_div, one.words[0], one.words[1], {over, under});
         return true;
       }},
      {"floor_truncates",
       [](Patch& patch, const Instruction& one) {
         if (!is_extended(one, spirv::floor)) return false;
         Instruction other = one;
         other.words[3] = spirv::trunc;
         patch.module.put(std::move(other));
         return true;
       }},
      {"round_half_up",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if (!is_extended(one, spirv::round_even) || !module.is_float(one.words[0], 32)) return false;
         const uint32_t more = module.make(spirv::f_add, one.words[0], {one.words[4], module.value(one.words[0], 0x3f000000)});
         module.put(spirv::ext_inst, one.words[0], one.words[1], {one.words[2], spirv::floor, more});
         return true;
       }},
      {"unsigned_to_float",
       [](Patch& patch, const Instruction& one) { return one.op == spirv::convert_u_to_f && with_op(patch, one, spirv::convert_s_to_f); }},
      {"float64_in_32_bits",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         const bool taken = one.op == spirv::f_add || one.op == spirv::f_sub || one.op == spirv::f_mul || one.op == spirv::f_div;
         if (!taken || !module.is_float(one.words[0], 64)) return false;
         const uint32_t narrow = module.shaped(module.float_type(32), one.words[0]);
         const uint32_t a = module.make(spirv::f_convert, narrow, {one.words[2]});
         const uint32_t b = module.make(spirv::f_convert, narrow, {one.words[3]});
         module.put(spirv::f_convert, one.words[0], one.words[1], {module.make(one.op, narrow, {a, b})});
         return true;
       }},

      // ---- integers
      {"int64_add",
       [](Patch& patch, const Instruction& one) { return (one.op == spirv::i_add || one.op == spirv::i_sub) && in_32_bits(patch, one); }},
      {"int64_multiply", [](Patch& patch, const Instruction& one) { return one.op == spirv::i_mul && in_32_bits(patch, one); }},
      {"int64_shift",
       [](Patch& patch, const Instruction& one) {
         return one.op >= spirv::shift_right_logical && one.op <= spirv::shift_left && in_32_bits(patch, one, true);
       }},
      {"int64_compare",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if (!is_int64_comparison(module, one)) return false;
         const uint32_t narrow = module.shaped(module.uint_type(), module.type_of(one.words[2]));
         const uint32_t a = module.make(spirv::u_convert, narrow, {one.words[2]});
         const uint32_t b = module.make(spirv::u_convert, narrow, {one.words[3]});
         module.put(one.op, one.words[0], one.words[1], {a, b});
         return true;
       }},
      {"int64_convert",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         const bool to_float = one.op == spirv::convert_s_to_f || one.op == spirv::convert_u_to_f;
         if (!to_float || !module.is_int(module.type_of(one.words[2]), 64)) return false;
         const uint32_t narrow = module.shaped(module.uint_type(), one.words[0]);
         return with_operand(patch, one, 2, module.make(spirv::u_convert, narrow, {one.words[2]}));
       }},
      {"division_unsigned",
       [](Patch& patch, const Instruction& one) { return one.op == spirv::s_div && as_unsigned(patch, one, spirv::u_div); }},
      {"modulo_unsigned",
       [](Patch& patch, const Instruction& one) {
         return (one.op == spirv::s_rem || one.op == spirv::s_mod) && as_unsigned(patch, one, spirv::u_mod);
       }},
      {"shift_logical",
       [](Patch& patch, const Instruction& one) {
         return one.op == spirv::shift_right_arithmetic && with_op(patch, one, spirv::shift_right_logical);
       }},
      {"bit_field_sign",
       [](Patch& patch, const Instruction& one) { return swapped(patch, one, spirv::bit_field_s_extract, spirv::bit_field_u_extract); }},
      {"vector_and_first",
       [](Patch& patch, const Instruction& one) {
         return one.op == spirv::bitwise_and && patch.module.components(one.words[0]) > 1 && copied(patch, one, 2);
       }},
      {"high_product",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::u_mul_extended && one.op != spirv::s_mul_extended) return false;
         Module& module = patch.module;
         const uint32_t type = module.type_of(one.words[2]);
         const uint32_t low = module.make(spirv::i_mul, type, {one.words[2], one.words[3]});
         module.put(spirv::composite_construct, one.words[0], one.words[1], {low, module.null(type)});
         return true;
       }},
      {"carry_lost",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::i_add_carry && one.op != spirv::i_sub_borrow) return false;
         Module& module = patch.module;
         const uint32_t type = module.type_of(one.words[2]);
         const uint32_t low = module.make(one.op == spirv::i_add_carry ? spirv::i_add : spirv::i_sub, type, {one.words[2], one.words[3]});
         module.put(spirv::composite_construct, one.words[0], one.words[1], {low, module.null(type)});
         return true;
       }},
      {"multiply_24_bits",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if (one.op != spirv::i_mul || !module.is_int(one.words[0], 32)) return false;
         const uint32_t mask = module.value(one.words[0], 0x00ffffff);
         const uint32_t a = module.make(spirv::bitwise_and, one.words[0], {one.words[2], mask});
         const uint32_t b = module.make(spirv::bitwise_and, one.words[0], {one.words[3], mask});
         module.put(spirv::i_mul, one.words[0], one.words[1], {a, b});
         return true;
       }},

      // ---- atomics, barriers and shared memory
      {"atomic_add_split",
       [](Patch& patch, const Instruction& one) {  // parameter "float": floats only
         const bool floats = patch.bug.parameter == "float";
         if (one.op != (floats ? spirv::atomic_f_add : spirv::atomic_i_add)) return false;
         patch.module.put(spirv::load, one.words[0], one.words[1], {one.words[2]});
         const uint32_t sum = patch.module.make(floats ? spirv::f_add : spirv::i_add, one.words[0], {one.words[1], one.words[5]});
         patch.module.put({spirv::store, {one.words[2], sum}});
         return true;
       }},
      {"atomic_add_new",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::atomic_i_add) return false;
         const std::vector<uint32_t> operands(one.words.begin() + 2, one.words.end());
         const uint32_t old = patch.module.make(spirv::atomic_i_add, one.words[0], operands);
         patch.module.put(spirv::i_add, one.words[0], one.words[1], {old, one.words[5]});
         return true;
       }},
      {"atomic_max_sign",
       [](Patch& patch, const Instruction& one) {
         return swapped(patch, one, spirv::atomic_s_max, spirv::atomic_u_max) ||
                swapped(patch, one, spirv::atomic_s_min, spirv::atomic_u_min);
       }},
      {"atomic_compare_ignored",
       [](Patch& patch, const Instruction& one) {
         if (one.op != spirv::atomic_compare_exchange) return false;
         patch.module.put(spirv::atomic_exchange, one.words[0], one.words[1], {one.words[2], one.words[3], one.words[4], one.words[6]});
         return true;
       }},
      {"barrier_dropped", [](Patch&, const Instruction& one) { return one.op == spirv::control_barrier; }},
      {"shared_memory_wraps",
       [](Patch& patch, const Instruction& one) {  // number: bytes that exist
         if (one.op != spirv::access_chain && one.op != spirv::in_bounds_access_chain) return false;
         Module& module = patch.module;
         const Instruction* pointer = module.definition(module.type_of(one.words[2]));
         if (!pointer || pointer->op != spirv::type_pointer || pointer->words[1] != 4 || one.words.size() < 4) return false;
         const Instruction* array = module.definition(pointer->words[2]);
         const uint32_t bytes = patch.number(16384);
         if (!array || array->op != spirv::type_array || module.bytes_of(pointer->words[2]) <= bytes) return false;
         const uint32_t type = module.type_of(one.words[3]), element = module.bytes_of(array->words[1]);
         return with_operand(patch, one, 3, make_unsigned(module, spirv::u_mod, type, {one.words[3], module.value(type, bytes / element)}));
       }},
      {"loop_short",
       [](Patch& patch, const Instruction& one) {  // "all": loops without a hint to unroll too
         if (one.op != spirv::s_less && one.op != spirv::u_less) return false;
         const auto& conditions = patch.loop_conditions;
         if (std::find(conditions.begin(), conditions.end(), one.words[1]) == conditions.end()) return false;
         const uint32_t type = patch.module.type_of(one.words[3]);
         return with_operand(patch, one, 3, patch.module.make(spirv::i_sub, type, {one.words[3], patch.module.value(type, 1)}));
       }},

      // ---- cooperative matrices
      {"matrix_accumulator",
       [](Patch& patch, const Instruction& one) {
         return one.op == spirv::matrix_mul_add_khr && with_operand(patch, one, 4, patch.module.null(one.words[0]));
       }},
      {"matrix_in_fp16",
       [](Patch& patch, const Instruction& one) {
         Module& module = patch.module;
         if (one.op != spirv::matrix_mul_add_khr || !module.is_float(one.words[0], 32)) return false;
         std::vector<uint32_t> operands = module.definition(one.words[0])->words;
         operands.erase(operands.begin()), operands[0] = module.float_type(16);
         const uint32_t half = module.declare_type(spirv::type_matrix_khr, operands);
         const uint32_t sum = module.make(one.op, one.words[0], {one.words.begin() + 2, one.words.end()});
         module.put(spirv::f_convert, one.words[0], one.words[1], {module.make(spirv::f_convert, half, {sum})});
         return true;
       }},
      {"matrix_transposed",
       [](Patch& patch, const Instruction& one) {
         return one.op == spirv::matrix_load_khr && with_operand(patch, one, 3, toggled_layout(patch.module, one.words[3]));
       }},
      {"matrix_layout",
       [](Patch& patch, const Instruction& one) {  // components 0 and 1, 2 and 3, ... change places
         if (one.op != spirv::access_chain && one.op != spirv::in_bounds_access_chain) return false;
         Module& module = patch.module;
         const Instruction* pointer = module.definition(module.type_of(one.words[2]));
         if (!pointer || pointer->op != spirv::type_pointer) return false;
         uint32_t type = pointer->words[2];
         for (size_t i = 3; i + 1 < one.words.size(); ++i) type = module.definition(type)->words[1];
         if (module.definition(type)->op != spirv::type_matrix_khr) return false;
         const uint32_t index = one.words.back(), index_type = module.type_of(index);
         return with_operand(patch, one, one.words.size() - 1,
                             module.make(spirv::bitwise_xor, index_type, {index, module.value(index_type, 1)}));
       }},
  };
  return all;
}

// ---- state

#define DEVICE_FUNCTIONS(X)                                                                                                       \
  X(DestroyDevice)                                                                                                                \
  X(CreateShaderModule)                                                                                                           \
  X(CreateComputePipelines)                                                                                                       \
  X(UpdateDescriptorSets)                                                                                                         \
  X(BeginCommandBuffer)                                                                                                           \
  X(EndCommandBuffer) X(CmdBindPipeline) X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CmdDispatchIndirect)       \
      X(CmdPipelineBarrier) X(CmdCopyBuffer) X(CmdFillBuffer) X(CmdBeginConditionalRenderingEXT) X(CmdEndConditionalRenderingEXT) \
          X(QueueSubmit)

struct Device {
  VkDevice handle = VK_NULL_HANDLE;
  PFN_vkGetDeviceProcAddr next = nullptr;
  uint32_t subgroup_size = 32;
#define MEMBER(name) PFN_vk##name name = nullptr;
  DEVICE_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct Instance {
  VkInstance handle = VK_NULL_HANDLE;
  PFN_vkGetInstanceProcAddr next = nullptr;
  PFN_vkGetPhysicalDeviceProperties2 get_properties = nullptr;  // `next` returns the layer's own once the instance is complete
};

// What a dispatch uses.
struct Bound {
  VkPipeline pipeline = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;
  std::vector<uint8_t> push;
};

struct Dispatch {
  Bound bound;
  uint32_t x, y, z;
};

struct List {
  Bound bound;
  std::optional<Dispatch> held;  // to run after the next one
  bool barrier = false;          // since the held one
};

// What is known of a shader module: its workgroup size, and whether it has loops marked for unrolling, or any.
struct ModuleInfo {
  std::vector<uint32_t> code;
  bool unrolled = false, loops = false;
};

std::recursive_mutex mutex;
std::map<void*, Device> devices;  // by dispatch key
std::map<void*, Instance> instances;
std::unordered_map<VkShaderModule, ModuleInfo> modules;
std::unordered_map<VkPipeline, uint32_t> invocations;  // of a workgroup
std::unordered_map<VkCommandBuffer, List> lists;
uint64_t submissions = 0, recordings = 0, changed = 0;

void* key_of(const void* handle) {
  return *static_cast<void* const*>(handle);
}
Device& device_of(const void* handle) {
  return devices.at(key_of(handle));
}

#define LOCKED const std::lock_guard lock(mutex)

// ---- shaders and pipelines

// The module as the bug compiles it; `code` itself if the bug is none of the shader compiler.
std::vector<uint32_t> patched(const uint32_t* code, size_t size, const Bug& bug, uint32_t subgroup_size) {
  const auto found = rewrites().find(bug.name);
  if (found == rewrites().end()) return {code, code + size};
  Module module(code, size);
  if (bug.is("subgroup_add_partial"))
    for (const uint32_t number : {61u, 65u}) module.add_capability(number);  // GroupNonUniform, GroupNonUniformShuffle
  Patch patch{module, bug, subgroup_size, loop_conditions(module, bug.parameter == "all")};
  module.replace([&](const Instruction& one) {
    const bool taken = found->second(patch, one);
    changed += taken;
    return taken;
  });
  return module.code();
}

VKAPI_ATTR VkResult VKAPI_CALL CreateShaderModule(VkDevice handle, const VkShaderModuleCreateInfo* info, const VkAllocationCallbacks* host,
                                                  VkShaderModule* made) {
  LOCKED;
  Device& device = device_of(handle);
  const std::vector<uint32_t> code = patched(info->pCode, info->codeSize / 4, current_bug(), device.subgroup_size);
  VkShaderModuleCreateInfo other = *info;
  other.pCode = code.data(), other.codeSize = code.size() * 4;
  ModuleInfo kept;
  kept.code.assign(info->pCode, info->pCode + info->codeSize / 4);
  const Module module(kept.code.data(), kept.code.size());
  for (const Instruction& one : module.instructions())
    if (one.op == spirv::loop_merge) kept.loops = true, kept.unrolled |= (one.words[2] & 1) != 0;
  const VkResult result = device.CreateShaderModule(handle, &other, host, made);
  if (result == VK_SUCCESS) modules[*made] = std::move(kept);
  return result;
}

// The invocations of a workgroup, with the specialization constants.
uint32_t count_invocations(const std::vector<uint32_t>& code, const VkSpecializationInfo* given) {
  const Module module(code.data(), code.size());
  std::unordered_map<uint32_t, uint32_t> numbers;  // specialization constants by id of the result
  uint32_t size_id = 0;
  std::vector<uint32_t> size{1, 1, 1};
  for (const Instruction& one : module.instructions()) {
    if (one.op == spirv::decorate && one.words[1] == 1) numbers[one.words[0]] = one.words[2];           // SpecId
    if (one.op == spirv::decorate && one.words[1] == 11 && one.words[2] == 25) size_id = one.words[0];  // BuiltIn WorkgroupSize
    if (one.op == spirv::execution_mode && one.words[1] == 17) size.assign(one.words.begin() + 2, one.words.begin() + 5);
  }
  const auto value = [&](uint32_t id) {
    const auto number = numbers.find(id);
    for (uint32_t i = 0; given && number != numbers.end() && i < given->mapEntryCount; ++i)
      if (given->pMapEntries[i].constantID == number->second) {
        uint32_t bits = 0;
        std::memcpy(&bits, static_cast<const char*>(given->pData) + given->pMapEntries[i].offset, 4);
        return bits;
      }
    return module.bits_of(id);
  };
  for (const Instruction& one : module.instructions())
    if (one.op == spirv::execution_mode_id && one.words[1] == 38)
      for (size_t i = 0; i < 3; ++i) size[i] = value(one.words[2 + i]);
  if (const Instruction* whole = size_id ? module.definition(size_id) : nullptr)
    for (size_t i = 0; i < 3; ++i) size[i] = value(whole->words[2 + i]);
  return size[0] * size[1] * size[2];
}

VKAPI_ATTR VkResult VKAPI_CALL CreateComputePipelines(VkDevice handle, VkPipelineCache cache, uint32_t count,
                                                      const VkComputePipelineCreateInfo* infos, const VkAllocationCallbacks* host,
                                                      VkPipeline* made) {
  LOCKED;
  const Bug bug = current_bug();
  std::vector<VkComputePipelineCreateInfo> others(infos, infos + count);
  for (auto& info : others) {
    const ModuleInfo& module = modules[info.stage.module];
    if (bug.is("unrolling_fails") && (bug.parameter == "all" ? module.loops : module.unrolled)) return ++changed, VK_ERROR_UNKNOWN;
    if (bug.is("constants_ignored")) changed += info.stage.pSpecializationInfo != nullptr, info.stage.pSpecializationInfo = nullptr;
  }
  const VkResult result = device_of(handle).CreateComputePipelines(handle, bug ? VK_NULL_HANDLE : cache, count, others.data(), host, made);
  if (bug.is("workgroup_too_large") && result == VK_SUCCESS)
    for (uint32_t i = 0; i < count; ++i)
      invocations[made[i]] = count_invocations(modules[infos[i].stage.module].code, infos[i].stage.pSpecializationInfo);
  return result;
}

VKAPI_ATTR void VKAPI_CALL UpdateDescriptorSets(VkDevice handle, uint32_t count, const VkWriteDescriptorSet* writes, uint32_t copies,
                                                const VkCopyDescriptorSet* copied) {
  LOCKED;
  const Bug bug = current_bug();
  std::vector<VkWriteDescriptorSet> others(writes, writes + count);
  std::vector<std::vector<VkDescriptorBufferInfo>> buffers;
  for (VkWriteDescriptorSet& write : others) {
    if (!write.pBufferInfo || !bug.is("offset_rounded")) continue;
    auto& infos = buffers.emplace_back(write.pBufferInfo, write.pBufferInfo + write.descriptorCount);
    for (VkDescriptorBufferInfo& info : infos) {
      const VkDeviceSize offset = info.offset / bug.number(256) * bug.number(256);
      changed += offset != info.offset, info.offset = offset;
    }
    write.pBufferInfo = infos.data();
  }
  device_of(handle).UpdateDescriptorSets(handle, count, others.data(), copies, copied);
}

// ---- recording

void bind(Device& device, VkCommandBuffer commands, const Bound& bound) {
  if (bound.pipeline) device.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound.pipeline);
  if (bound.set) device.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound.layout, 0, 1, &bound.set, 0, nullptr);
  if (!bound.push.empty())
    device.CmdPushConstants(commands, bound.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(bound.push.size()),
                            bound.push.data());
}

// Records the dispatch held back, if there is one.
void release(VkCommandBuffer commands) {
  List& list = lists[commands];
  if (!list.held) return;
  Device& device = device_of(commands);
  const Dispatch held = *std::exchange(list.held, std::nullopt);
  bind(device, commands, held.bound);
  device.CmdDispatch(commands, held.x, held.y, held.z);
  bind(device, commands, list.bound);
}

VKAPI_ATTR VkResult VKAPI_CALL BeginCommandBuffer(VkCommandBuffer commands, const VkCommandBufferBeginInfo* info) {
  LOCKED;
  lists[commands] = {};
  return device_of(commands).BeginCommandBuffer(commands, info);
}

VKAPI_ATTR VkResult VKAPI_CALL EndCommandBuffer(VkCommandBuffer commands) {
  LOCKED;
  release(commands);
  return device_of(commands).EndCommandBuffer(commands);
}

VKAPI_ATTR void VKAPI_CALL CmdBindPipeline(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipeline pipeline) {
  LOCKED;
  lists[commands].bound = {};
  lists[commands].bound.pipeline = pipeline;
  device_of(commands).CmdBindPipeline(commands, point, pipeline);
}

VKAPI_ATTR void VKAPI_CALL CmdBindDescriptorSets(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout,
                                                 uint32_t first, uint32_t count, const VkDescriptorSet* sets, uint32_t offsets,
                                                 const uint32_t* dynamic) {
  LOCKED;
  Bound& bound = lists[commands].bound;
  bound.layout = layout, bound.set = sets[0];
  device_of(commands).CmdBindDescriptorSets(commands, point, layout, first, count, sets, offsets, dynamic);
}

VKAPI_ATTR void VKAPI_CALL CmdPushConstants(VkCommandBuffer commands, VkPipelineLayout layout, VkShaderStageFlags stages, uint32_t offset,
                                            uint32_t size, const void* values) {
  LOCKED;
  const Bug bug = current_bug();
  if (bug.is("push_constants_lost")) {
    const uint32_t limit = bug.number(128);
    changed += offset + size > limit;
    if (offset >= limit) return;
    size = std::min(size, limit - offset);
  }
  Bound& bound = lists[commands].bound;
  bound.layout = layout;
  if (bound.push.size() < offset + size) bound.push.resize(offset + size);
  std::memcpy(bound.push.data() + offset, values, size);
  device_of(commands).CmdPushConstants(commands, layout, stages, offset, size, values);
}

VKAPI_ATTR void VKAPI_CALL CmdDispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  LOCKED;
  Device& device = device_of(commands);
  const Bug bug = current_bug();
  List& list = lists[commands];
  if (bug.is("workgroup_too_large") && invocations[list.bound.pipeline] > bug.number(256)) return void(++changed);
  uint32_t* const axes[] = {&x, &y, &z};
  const auto shorten = [&] {  // the last workgroups of the axis with most of them
    uint32_t* longest = *std::max_element(axes, axes + 3, [](const uint32_t* a, const uint32_t* b) { return *a < *b; });
    if (*longest > 1) --*longest, ++changed;
  };
  if (bug.is("last_workgroups")) shorten();
  if (bug.is("recordings_differ") && recordings++ % bug.number(2) == bug.number(2) - 1) shorten();
  if (bug.is("depth_ignored") && z > 1) z = 1, ++changed;
  if (!bug.is("barriers_ignored")) return device.CmdDispatch(commands, x, y, z);
  if (list.held && list.barrier) {  // this one runs before the one that it should follow
    device.CmdDispatch(commands, x, y, z), ++changed;
    return release(commands);
  }
  release(commands);
  list.held = Dispatch{list.bound, x, y, z}, list.barrier = false;
}

VKAPI_ATTR void VKAPI_CALL CmdDispatchIndirect(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset) {
  LOCKED;
  release(commands);
  if (current_bug().is("indirect_ignored")) return ++changed, device_of(commands).CmdDispatch(commands, 1, 1, 1);
  device_of(commands).CmdDispatchIndirect(commands, buffer, offset);
}

VKAPI_ATTR void VKAPI_CALL CmdPipelineBarrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                                              VkDependencyFlags flags, uint32_t count, const VkMemoryBarrier* all, uint32_t buffer_count,
                                              const VkBufferMemoryBarrier* buffers, uint32_t image_count,
                                              const VkImageMemoryBarrier* images) {
  LOCKED;
  if (lists[commands].held) return void(lists[commands].barrier = true);
  device_of(commands).CmdPipelineBarrier(commands, from, to, flags, count, all, buffer_count, buffers, image_count, images);
}

VKAPI_ATTR void VKAPI_CALL CmdCopyBuffer(VkCommandBuffer commands, VkBuffer source, VkBuffer target, uint32_t count,
                                         const VkBufferCopy* given) {
  LOCKED;
  release(commands);
  std::vector<VkBufferCopy> regions(given, given + count);
  for (VkBufferCopy& region : regions)
    if (current_bug().is("copy_short") && region.size > 4) region.size -= 4, ++changed;
  device_of(commands).CmdCopyBuffer(commands, source, target, count, regions.data());
}

VKAPI_ATTR void VKAPI_CALL CmdFillBuffer(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset, VkDeviceSize size, uint32_t word) {
  LOCKED;
  release(commands);
  if (current_bug().is("fill_short") && size != VK_WHOLE_SIZE && size > 4) size -= 4, ++changed;
  device_of(commands).CmdFillBuffer(commands, buffer, offset, size, word);
}

VKAPI_ATTR void VKAPI_CALL CmdBeginConditionalRenderingEXT(VkCommandBuffer commands, const VkConditionalRenderingBeginInfoEXT* given) {
  LOCKED;
  release(commands);
  if (current_bug().is("condition_ignored")) return void(++changed);
  device_of(commands).CmdBeginConditionalRenderingEXT(commands, given);
}

VKAPI_ATTR void VKAPI_CALL CmdEndConditionalRenderingEXT(VkCommandBuffer commands) {
  LOCKED;
  release(commands);
  if (!current_bug().is("condition_ignored")) device_of(commands).CmdEndConditionalRenderingEXT(commands);
}

// ---- submission

VKAPI_ATTR VkResult VKAPI_CALL QueueSubmit(VkQueue queue, uint32_t count, const VkSubmitInfo* given, VkFence fence) {
  LOCKED;
  const Bug bug = current_bug();
  if (bug.is("device_lost")) return ++changed, VK_ERROR_DEVICE_LOST;
  if (bug.is("never_ends")) return ++changed, VK_SUCCESS;  // signals nothing
  std::vector<VkSubmitInfo> infos(given, given + count);
  if (bug.is("runs_skipped") && submissions++ % bug.number(2) == bug.number(2) - 1)
    for (VkSubmitInfo& info : infos) changed += info.commandBufferCount > 0, info.commandBufferCount = 0;
  return device_of(queue).QueueSubmit(queue, count, infos.data(), fence);
}

VKAPI_ATTR void VKAPI_CALL DestroyDevice(VkDevice handle, const VkAllocationCallbacks* host) {
  LOCKED;
  const Device device = device_of(handle);
  devices.erase(key_of(handle));
  device.DestroyDevice(handle, host);
}

// ---- what the device reports

VKAPI_ATTR void VKAPI_CALL GetPhysicalDeviceProperties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2* given) {
  LOCKED;
  instances.at(key_of(physical)).get_properties(physical, given);
  const Bug bug = current_bug();
  const bool subgroups = bug.is("subgroup_size");
  const uint32_t factor = subgroups ? bug.number(2) : 1;
  VkPhysicalDeviceLimits& limits = given->properties.limits;
  if (bug.is("push_constants_lost")) limits.maxPushConstantsSize = std::max(limits.maxPushConstantsSize, bug.number(128) * 2), ++changed;
  if (bug.is("workgroup_too_large")) limits.maxComputeWorkGroupInvocations = std::max(limits.maxComputeWorkGroupInvocations, 1024u);
  for (auto* other = static_cast<VkBaseOutStructure*>(given->pNext); subgroups && other; other = other->pNext) {
    if (other->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES)
      reinterpret_cast<VkPhysicalDeviceSubgroupProperties*>(other)->subgroupSize *= factor, ++changed;
    if (other->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      reinterpret_cast<VkPhysicalDeviceVulkan11Properties*>(other)->subgroupSize *= factor, ++changed;
    if (other->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES) {
      auto* sizes = reinterpret_cast<VkPhysicalDeviceSubgroupSizeControlProperties*>(other);
      sizes->minSubgroupSize *= factor, sizes->maxSubgroupSize *= factor;
    }
    if (other->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES) {
      auto* sizes = reinterpret_cast<VkPhysicalDeviceVulkan13Properties*>(other);
      sizes->minSubgroupSize *= factor, sizes->maxSubgroupSize *= factor;
    }
  }
}

// ---- loader interface

template <typename Info>
Info* link_of(const void* next, VkStructureType type, VkLayerFunction function) {
  for (auto* info = static_cast<Info*>(const_cast<void*>(next)); info; info = static_cast<Info*>(const_cast<void*>(info->pNext)))
    if (info->sType == type && info->function == function) return info;
  return nullptr;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* host, VkInstance* made) {
  auto* link = link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO, VK_LAYER_LINK_INFO);
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;
  const auto next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(next(VK_NULL_HANDLE, "vkCreateInstance"));
  const VkResult result = create(info, host, made);
  if (result != VK_SUCCESS) return result;
  LOCKED;
  instances[key_of(*made)] = {*made, next,
                              reinterpret_cast<PFN_vkGetPhysicalDeviceProperties2>(next(*made, "vkGetPhysicalDeviceProperties2"))};
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo* info, const VkAllocationCallbacks* host,
                                            VkDevice* made) {
  auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO, VK_LAYER_LINK_INFO);
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;
  const auto next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  const auto next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  LOCKED;
  const Instance& instance = instances.at(key_of(physical));
  const auto create = reinterpret_cast<PFN_vkCreateDevice>(next_instance(instance.handle, "vkCreateDevice"));
  const VkResult result = create(physical, info, host, made);
  if (result != VK_SUCCESS) return result;
  Device device;
  device.handle = *made, device.next = next;
  VkPhysicalDeviceSubgroupProperties subgroups{};
  VkPhysicalDeviceProperties2 properties{};
  subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, properties.pNext = &subgroups;
  instance.get_properties(physical, &properties);
  device.subgroup_size = subgroups.subgroupSize;
#define LOAD(name) device.name = reinterpret_cast<PFN_vk##name>(next(*made, "vk" #name));
  DEVICE_FUNCTIONS(LOAD)
#undef LOAD
  devices[key_of(*made)] = device;
  return result;
}

const std::unordered_map<std::string, PFN_vkVoidFunction>& device_entries() {
#define ENTRY(name) {"vk" #name, reinterpret_cast<PFN_vkVoidFunction>(&name)},
  static const std::unordered_map<std::string, PFN_vkVoidFunction> entries{DEVICE_FUNCTIONS(ENTRY)};
#undef ENTRY
  return entries;
}

}  // namespace

extern "C" {

VK_LAYER_EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetDeviceProcAddr(VkDevice handle, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) return reinterpret_cast<PFN_vkVoidFunction>(&vkGetDeviceProcAddr);
  const auto own = device_entries().find(name);
  LOCKED;
  const PFN_vkVoidFunction next = device_of(handle).next(handle, name);
  return own != device_entries().end() && next ? own->second : next;
}

VK_LAYER_EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance handle, const char* name) {
  const std::pair<const char*, PFN_vkVoidFunction> entries[] = {
      {"vkGetInstanceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(&vkGetInstanceProcAddr)},
      {"vkGetDeviceProcAddr", reinterpret_cast<PFN_vkVoidFunction>(&vkGetDeviceProcAddr)},
      {"vkCreateInstance", reinterpret_cast<PFN_vkVoidFunction>(&CreateInstance)},
      {"vkCreateDevice", reinterpret_cast<PFN_vkVoidFunction>(&CreateDevice)},
      {"vkGetPhysicalDeviceProperties2", reinterpret_cast<PFN_vkVoidFunction>(&GetPhysicalDeviceProperties2)},
  };
  for (const auto& [known, entry] : entries)
    if (std::strcmp(name, known) == 0) return entry;
  const auto own = device_entries().find(name);
  if (own != device_entries().end()) return own->second;
  if (!handle) return nullptr;
  LOCKED;
  return instances.at(key_of(handle)).next(handle, name);
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* version) {
  version->loaderLayerInterfaceVersion = 2;
  version->pfnGetInstanceProcAddr = &vkGetInstanceProcAddr;
  version->pfnGetDeviceProcAddr = &vkGetDeviceProcAddr;
  version->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}

// Returns the size of the module as the current bug compiles it on a device with subgroups of 32, and copies it to `target` unless it is
// null.
VK_LAYER_EXPORT uint64_t driver_bug_patch(const uint32_t* code, uint64_t size, uint32_t* target) {
  LOCKED;
  const std::vector<uint32_t> words = patched(code, size, current_bug(), 32);
  if (target) std::copy(words.begin(), words.end(), target);
  return words.size();
}

// Returns how many instructions and calls the bugs have changed so far.
VK_LAYER_EXPORT uint64_t driver_bug_count() {
  LOCKED;
  return changed;
}
}
