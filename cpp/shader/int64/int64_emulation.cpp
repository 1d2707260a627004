#include "shader/int64/int64_emulation.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "shader/int64/int64_emulator.h"

namespace pumice::spirv {
namespace {

constexpr uint32_t kInt64 = 11, kNoContraction = 42;  // capability Int64; decoration NoContraction

struct OpcodeFunction {
  uint32_t op;
  std::string_view name;
};

// Functions that replace unary and binary instructions, by opcode.
constexpr OpcodeFunction kArithmetic[] = {
    {OpSNegate, "pair_negate"},    {OpIAdd, "pair_add"},           {OpISub, "pair_subtract"}, {OpIMul, "pair_multiply"},
    {OpUDiv, "pair_divide"},       {OpSDiv, "pair_divide_signed"}, {OpUMod, "pair_modulo"},   {OpSRem, "pair_remainder_signed"},
    {OpSMod, "pair_modulo_signed"}};
constexpr OpcodeFunction kShifts[] = {{OpShiftRightLogical, "pair_shift_right"},
                                      {OpShiftRightArithmetic, "pair_shift_right_signed"},
                                      {OpShiftLeftLogical, "pair_shift_left"}};
// Functions keyed by GLSL.std.450 instruction. A clamp is a maximum followed by a minimum.
constexpr uint32_t kUClamp = 44, kSClamp = 45;
constexpr OpcodeFunction kMath[] = {{5, "pair_abs"},         {7, "pair_sign"}, {38, "pair_min"},
                                    {39, "pair_min_signed"}, {41, "pair_max"}, {42, "pair_max_signed"}};

// Expresses a comparison as "less than", with swapped operands, a negated result, or both.
struct ComparisonRewrite {
  uint16_t op;
  bool is_signed, swaps_operands, negates_result;
};
constexpr ComparisonRewrite kComparisons[] = {
    {OpULessThan, false, false, false},        {OpSLessThan, true, false, false},        {OpUGreaterThan, false, true, false},
    {OpSGreaterThan, true, true, false},       {OpULessThanEqual, false, true, true},    {OpSLessThanEqual, true, true, true},
    {OpUGreaterThanEqual, false, false, true}, {OpSGreaterThanEqual, true, false, true},
};

// Instructions that are kept with replaced types.
constexpr uint16_t kTypeOnlyOps[] = {OpUndef,
                                     OpFunction,
                                     OpFunctionParameter,
                                     OpFunctionCall,
                                     OpVariable,
                                     OpLoad,
                                     OpStore,
                                     OpCopyMemory,
                                     OpArrayLength,
                                     OpCompositeConstruct,
                                     OpCompositeExtract,
                                     OpCompositeInsert,
                                     OpCopyObject,
                                     OpCopyLogical,
                                     OpPhi,
                                     OpReturnValue,
                                     OpBitwiseOr,
                                     OpBitwiseXor,
                                     OpBitwiseAnd,
                                     OpNot,
                                     OpReadClockKHR,
                                     OpGroupNonUniformAllEqual,
                                     OpGroupNonUniformBroadcast,
                                     OpGroupNonUniformBroadcastFirst,
                                     OpGroupNonUniformShuffle,
                                     OpGroupNonUniformShuffleXor,
                                     OpGroupNonUniformShuffleUp,
                                     OpGroupNonUniformShuffleDown,
                                     OpGroupNonUniformBitwiseAnd,
                                     OpGroupNonUniformBitwiseOr,
                                     OpGroupNonUniformBitwiseXor,
                                     OpGroupNonUniformQuadBroadcast,
                                     OpGroupNonUniformQuadSwap};

template <typename List>
std::string_view find_function_name(const List& list, uint32_t op) {
  const auto found = std::ranges::find(list, op, &OpcodeFunction::op);
  return found == std::end(list) ? std::string_view() : found->name;
}

}  // namespace

std::string describe_unsupported_use(uint16_t op) {
  if (op >= OpAtomicLoad && op <= OpAtomicXor) return "atomic operations on 64-bit integers";
  if (op >= OpGroupNonUniformIAdd && op <= OpGroupNonUniformBitwiseXor) return "subgroup reductions of 64-bit integers";
  return "SPIR-V instruction " + std::to_string(op) + " on 64-bit integers";
}

Int64Emulator::Int64Emulator(std::span<const uint32_t> words, const std::map<uint32_t, uint64_t>& constants)
    : words_(words), module_(words), constants_(constants), globals_(words[kBoundWord]), functions_(globals_) {
  uint_ = globals_.declare_type(OpTypeInt, {32, 0});
  pair_ = globals_.declare_type(OpTypeVector, {uint_, 2});
}

uint32_t Int64Emulator::emit_result(uint16_t op, uint32_t type, std::initializer_list<uint32_t> operands, uint32_t result) {
  if (result == 0)
    result = globals_.new_id();
  else
    replaced_results_.insert(result);
  std::vector<uint32_t> words{type, result};
  words.insert(words.end(), operands);
  emit(op, words);
  return result;
}

uint32_t Int64Emulator::emit_call(std::string_view function, uint32_t type, std::initializer_list<uint32_t> arguments, uint32_t result) {
  if (result == 0)
    result = globals_.new_id();
  else
    replaced_results_.insert(result);
  std::vector<uint32_t> words{type, result, functions_.request_function(function)};
  words.insert(words.end(), arguments);
  emit(OpFunctionCall, words);
  return result;
}

void Int64Emulator::record_types(const Instruction& instruction) {
  if (is_type_declaration(instruction.op)) types_.insert(instruction[0]);
  const bool is_value = instruction.op == OpUndef || instruction.op >= OpConstantTrue || instruction.op == OpExtInst;
  if (is_value && has_type(instruction)) types_of_values_[instruction[1]] = instruction[0];
}

bool Int64Emulator::uses_int64(const Instruction& instruction) const {
  if (has_type(instruction) && is_int64(instruction[0])) return true;
  for (size_t i = 0; i < instruction.size(); ++i)
    if (!is_literal(instruction, i) && is_int64_value(instruction[i])) return true;
  return false;
}

void Int64Emulator::emit_retyped(const Instruction& instruction) {
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  if (has_type(instruction)) operands[0] = get_replacement_type(operands[0]);
  if (instruction.op == OpFunction) operands[3] = get_replacement_type(instruction[3]);
  emit(instruction.op, operands);
}

// --- Declarations

void Int64Emulator::declare_type(const Instruction& instruction) {
  const uint32_t id = instruction[0];
  if (is_int64(id)) {
    type_replacements_[id] = pair_;
    return;
  }
  if (is_int64_vector(id)) {
    type_replacements_[id] = get_pair_array_type(id, false);
    return;
  }
  if (instruction.op == OpTypePointer) check_pointer_type(instruction);
  std::vector<uint32_t> operands;
  for (size_t i = 1; i < instruction.size(); ++i) operands.push_back(is_literal(instruction, i) ? instruction[i] : get_member_type(id, i));
  if (instruction.op == OpTypeArray && is_int64_value(instruction[2]))
    operands[1] = globals_.declare_uint_constant(module_.get_constant_value(instruction[2]));
  const uint32_t replacement = globals_.declare_type(instruction.op, operands, id);
  if (replacement != id) type_replacements_[id] = replacement;
}

void Int64Emulator::declare_constant(const Instruction& instruction) {
  if (instruction.op == OpSpecConstant) folded_spec_constants_.insert(instruction[1]);
  const uint64_t value = find_constant_value(instruction[1]).value_or(0);
  const uint32_t low = globals_.declare_uint_constant(static_cast<uint32_t>(value)),
                 high = globals_.declare_uint_constant(static_cast<uint32_t>(value >> 32));
  globals_.add_instruction(OpConstantComposite, {pair_, instruction[1], low, high});
}

void Int64Emulator::rewrite_declaration(const Instruction& instruction) {
  if (is_type_declaration(instruction.op)) return declare_type(instruction);
  if (has_type(instruction) && is_int64(instruction[0]) && (instruction.op == OpConstant || instruction.op == OpSpecConstant))
    return declare_constant(instruction);
  if (instruction.op == OpSpecConstantOp && (uses_int64(instruction) || uses_int64_vectors(instruction)))
    return declare_constant_expression(instruction);
  if (has_type(instruction) && is_int64_vector(instruction[0])) record_constant_vector(instruction);
  std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
  if (has_type(instruction)) operands[0] = get_replacement_type(operands[0]);
  globals_.add_instruction(instruction.op, operands);
}

// --- Functions

uint32_t Int64Emulator::get_value_type(uint32_t value) const {
  const auto found = types_of_values_.find(value);
  if (found == types_of_values_.end()) throw ShaderCompileError("malformed SPIR-V: %" + std::to_string(value) + " has no type");
  return found->second;
}

// Returns an integer as uint; for a 64-bit integer, its low word.
uint32_t Int64Emulator::emit_conversion_to_uint(uint32_t integer) {
  const auto& type = module_.definition(get_value_type(integer));
  if (type[1] == 64) return emit_low_word(integer);
  if (type[2] == 0) return type[1] == 32 ? integer : emit_result(OpUConvert, uint_, {integer});
  if (type[1] < 32) integer = emit_result(OpSConvert, globals_.declare_type(OpTypeInt, {32, 1}), {integer});
  return emit_result(OpBitcast, uint_, {integer});
}

bool Int64Emulator::rewrite_arithmetic(const Instruction& instruction) {
  const uint16_t op = instruction.op;
  if (const auto name = find_function_name(kShifts, op); !name.empty()) {
    const uint32_t shift = emit_conversion_to_uint(instruction[3]);
    if (is_int64(instruction[0]))
      emit_call(name, pair_, {instruction[2], shift}, instruction[1]);
    else
      emit_result(op, get_replacement_type(instruction[0]), {instruction[2], shift}, instruction[1]);
    return true;
  }
  const auto name = find_function_name(kArithmetic, op);
  if (name.empty()) return false;
  if (op == OpSNegate)
    emit_call(name, pair_, {instruction[2]}, instruction[1]);
  else
    emit_call(name, pair_, {instruction[2], instruction[3]}, instruction[1]);
  return true;
}

bool Int64Emulator::rewrite_comparison(const Instruction& instruction) {
  const uint32_t result = instruction[1];
  if (instruction.op == OpIEqual || instruction.op == OpINotEqual) {
    const uint32_t words = emit_result(instruction.op, declare_bool_pair(), {instruction[2], instruction[3]});
    emit_result(instruction.op == OpIEqual ? OpAll : OpAny, declare_bool(), {words}, result);
    return true;
  }
  const auto found = std::ranges::find(kComparisons, instruction.op, &ComparisonRewrite::op);
  if (found == std::end(kComparisons)) return false;
  const std::string_view name = found->is_signed ? "pair_less_signed" : "pair_less";
  const uint32_t a = instruction[found->swaps_operands ? 3 : 2], b = instruction[found->swaps_operands ? 2 : 3];
  const uint32_t less = emit_call(name, declare_bool(), {a, b}, found->negates_result ? 0 : result);
  if (found->negates_result) emit_result(OpLogicalNot, declare_bool(), {less}, result);
  return true;
}

void Int64Emulator::convert_to_int64(const Instruction& instruction) {
  const uint32_t result = instruction[1], from = instruction[2];
  const auto& type = module_.definition(get_value_type(from));
  switch (instruction.op) {
    case OpUConvert:
      emit_result(OpCompositeConstruct, pair_, {emit_conversion_to_uint(from), globals_.declare_uint_constant(0)}, result);
      return;
    case OpSConvert: {
      const uint32_t int_type = globals_.declare_type(OpTypeInt, {32, 1});
      uint32_t number = from;
      if (type[1] < 32)
        number = emit_result(OpSConvert, int_type, {from});
      else if (type[2] == 0)
        number = emit_result(OpBitcast, int_type, {from});
      const uint32_t sign = emit_result(OpShiftRightArithmetic, int_type, {number, globals_.declare_uint_constant(31)});
      const uint32_t low = emit_result(OpBitcast, uint_, {number}), high = emit_result(OpBitcast, uint_, {sign});
      emit_result(OpCompositeConstruct, pair_, {low, high}, result);
      return;
    }
    default: {  // conversion from a float
      const uint32_t number = type[1] < 32 ? emit_result(OpFConvert, declare_float(32), {from}) : from;
      emit_call(type[1] == 64 ? "pair_from_double" : "pair_from_float", pair_, {number}, result);
    }
  }
}

void Int64Emulator::convert_from_int64(const Instruction& instruction) {
  const uint32_t type = instruction[0], result = instruction[1], from = instruction[2];
  const uint32_t width = module_.definition(type)[1];
  if (instruction.op == OpUConvert || instruction.op == OpSConvert) {
    const bool is_signed = module_.definition(type)[2] != 0;
    if (width == 32 && !is_signed) {
      emit_low_word(from, result);
      return;
    }
    const uint32_t low = emit_low_word(from);
    emit_result(width == 32 ? uint16_t{OpBitcast} : instruction.op, get_replacement_type(type), {low}, result);
    return;
  }
  const std::string suffix = instruction.op == OpConvertSToF ? "_signed" : "";
  if (width == 64 || width == 32) {
    emit_call((width == 64 ? "pair_to_double" : "pair_to_float") + suffix, get_replacement_type(type), {from}, result);
    return;
  }
  const uint32_t round_to_odd = emit_call("pair_to_float_round_odd" + suffix, declare_float(32), {from});
  emit_result(OpFConvert, get_replacement_type(type), {round_to_odd}, result);
}

bool Int64Emulator::rewrite_conversion(const Instruction& instruction) {
  if (instruction.op == OpBitcast) {
    const bool is_same = get_replacement_type(instruction[0]) == get_replacement_type(get_value_type(instruction[2]));
    emit_result(is_same ? OpCopyObject : OpBitcast, get_replacement_type(instruction[0]), {instruction[2]}, instruction[1]);
    return true;
  }
  const bool converts =
      (instruction.op >= OpConvertFToU && instruction.op <= OpConvertUToF) || instruction.op == OpUConvert || instruction.op == OpSConvert;
  if (!converts) return false;
  is_int64(instruction[0]) ? convert_to_int64(instruction) : convert_from_int64(instruction);
  return true;
}

bool Int64Emulator::rewrite_math_call(const Instruction& instruction) {
  if (instruction.op != OpExtInst || instruction[2] != math_) return false;
  const uint32_t number = instruction[3], result = instruction[1];
  if (number == kUClamp || number == kSClamp) {
    const std::string suffix = number == kSClamp ? "_signed" : "";
    const uint32_t max_value = emit_call("pair_max" + suffix, pair_, {instruction[4], instruction[5]});
    emit_call("pair_min" + suffix, pair_, {max_value, instruction[6]}, result);
    return true;
  }
  const auto name = find_function_name(kMath, number);
  if (name.empty()) return false;
  if (instruction.size() == 5)
    emit_call(name, pair_, {instruction[4]}, result);
  else
    emit_call(name, pair_, {instruction[4], instruction[5]}, result);
  return true;
}

void Int64Emulator::rewrite_instruction(const Instruction& instruction) {
  if (uses_int64_vectors(instruction)) return rewrite_vectors(instruction);
  const uint16_t op = instruction.op;
  if (std::ranges::find(kTypeOnlyOps, op) != std::end(kTypeOnlyOps) || !uses_int64(instruction)) return emit_retyped(instruction);
  if (op == OpSelect) {
    const uint32_t mask = emit_result(OpCompositeConstruct, declare_bool_pair(), {instruction[2], instruction[2]});
    emit_result(OpSelect, pair_, {mask, instruction[3], instruction[4]}, instruction[1]);
    return;
  }
  if (rewrite_arithmetic(instruction) || rewrite_comparison(instruction) || rewrite_conversion(instruction) ||
      rewrite_math_call(instruction))
    return;
  unsupported_.insert(describe_unsupported_use(op));
}

// --- The module

// Returns whether an instruction before the declarations is kept. Drops names and decorations of replaced types, SpecId of constants that
// became plain constants, and NoContraction on instructions that became calls.
bool Int64Emulator::is_retained(const Instruction& instruction) const {
  if (instruction.op == OpCapability) return instruction[0] != kInt64;
  if (instruction.op != OpName && instruction.op != OpDecorate) return true;
  const uint32_t id = instruction[0];
  if (type_replacements_.contains(id) || components_.contains(id)) return false;
  if (instruction.op == OpName) return true;
  return !(instruction[1] == SpecId && folded_spec_constants_.contains(id)) &&
         !(instruction[1] == kNoContraction && replaced_results_.contains(id));
}

std::vector<uint32_t> Int64Emulator::run() {
  const auto& all = module_.instructions();
  const auto first_type = std::ranges::find_if(all, [](const Instruction& instruction) { return is_type_declaration(instruction.op); });
  const auto first_function = std::ranges::find(all, OpFunction, &Instruction::op);
  for (const auto& instruction : all) {
    record_types(instruction);
    if (instruction.op == OpExtInstImport && instruction.string_operand(1) == "GLSL.std.450") math_ = instruction[0];
  }
  if (first_type > first_function) throw ShaderCompileError("malformed SPIR-V: a function comes before all types");
  for (auto at = first_type; at != first_function; ++at) rewrite_declaration(*at);
  for (auto at = first_function; at != all.end(); ++at) rewrite_instruction(*at);
  const std::vector<uint32_t> functions = functions_.copy_definitions(math_);
  std::vector<uint32_t> result(words_.begin(), words_.begin() + kHeaderWords);
  for (auto at = all.begin(); at != first_type; ++at)
    if (is_retained(*at)) append(result, at->op, {at->operands.begin(), at->operands.end()});
  result.insert(result.end(), annotations_.begin(), annotations_.end());
  result[kBoundWord] = globals_.bound();
  for (const std::span<const uint32_t> section : {std::span(globals_.words()), std::span<const uint32_t>(body_), std::span(functions)})
    result.insert(result.end(), section.begin(), section.end());
  return result;
}

}  // namespace pumice::spirv

namespace pumice {

Int64Emulation emulate_int64(std::span<const uint32_t> spirv, const std::map<uint32_t, uint64_t>& constants) {
  spirv::Int64Emulator emulator(spirv, constants);
  std::vector<uint32_t> words = emulator.run();
  return {std::move(words), emulator.unsupported_uses()};
}

}  // namespace pumice
