#include "shader/int64/int64_emulator.h"

namespace pumice::spirv {
namespace {

// Returns the low `width` bits.
uint64_t truncate_bits(uint64_t value, uint32_t width) {
  return width < 64 ? value & ((uint64_t{1} << width) - 1) : value;
}

int64_t sign_extend(uint64_t value, uint32_t width) {
  const uint32_t above = 64 - width;
  return static_cast<int64_t>(value << above) >> above;
}

// Returns the remainder with the sign of the divisor (OpSMod).
int64_t floor_modulo(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

// Returns the result of a binary operation on `width`-bit integers; nullopt if SPIR-V leaves it undefined.
std::optional<uint64_t> evaluate_binary(uint32_t op, uint64_t a, uint64_t b, uint32_t width) {
  const int64_t signed_a = sign_extend(a, width), signed_b = sign_extend(b, width);
  const bool divides = op >= OpUDiv && op <= OpSMod, is_min = signed_a == sign_extend(uint64_t{1} << (width - 1), width);
  const bool overflows = is_min && signed_b == -1 && op != OpUDiv && op != OpUMod;
  const bool shifts = op >= OpShiftRightLogical && op <= OpShiftLeftLogical;
  if ((divides && (b == 0 || overflows)) || (shifts && b >= width)) return {};
  switch (op) {
    case OpSNegate:
      return 0 - a;
    case OpNot:
      return ~a;
    case OpIAdd:
      return a + b;
    case OpISub:
      return a - b;
    case OpIMul:
      return a * b;
    case OpUDiv:
      return a / b;
    case OpSDiv:
      return static_cast<uint64_t>(signed_a / signed_b);
    case OpUMod:
      return a % b;
    case OpSRem:
      return static_cast<uint64_t>(signed_a % signed_b);
    case OpSMod:
      return static_cast<uint64_t>(floor_modulo(signed_a, signed_b));
    case OpShiftRightLogical:
      return a >> b;
    case OpShiftRightArithmetic:
      return static_cast<uint64_t>(signed_a >> b);
    case OpShiftLeftLogical:
      return a << b;
    case OpBitwiseOr:
      return a | b;
    case OpBitwiseXor:
      return a ^ b;
    case OpBitwiseAnd:
      return a & b;
    case OpIEqual:
      return a == b;
    case OpINotEqual:
      return a != b;
    case OpUGreaterThan:
      return a > b;
    case OpSGreaterThan:
      return signed_a > signed_b;
    case OpUGreaterThanEqual:
      return a >= b;
    case OpSGreaterThanEqual:
      return signed_a >= signed_b;
    case OpULessThan:
      return a < b;
    case OpSLessThan:
      return signed_a < signed_b;
    case OpULessThanEqual:
      return a <= b;
    case OpSLessThanEqual:
      return signed_a <= signed_b;
    default:
      return {};
  }
}

}  // namespace

uint32_t Int64Emulator::get_width(uint32_t type) const {
  const auto& definition = module_.definition(type);
  return definition.op == OpTypeInt ? definition[1] : definition.op == OpTypeBool ? 1 : 0;
}

std::optional<uint64_t> Int64Emulator::find_constant_value(uint32_t id) const {
  const auto& constant = module_.definition(id);
  const uint32_t width = get_width(constant[0]);
  if (width == 0) return {};
  if (constant.op == OpSpecConstantOp) {
    const auto known = expression_values_.find(id);
    return known != expression_values_.end() ? known->second : expression_values_[id] = evaluate_constant(constant);
  }
  if (const auto number = module_.find_decoration(id, SpecId))
    if (const auto specialized = constants_.find(*number); specialized != constants_.end())
      return truncate_bits(specialized->second, width);
  switch (constant.op) {
    case OpConstant:
    case OpSpecConstant:
      return truncate_bits(constant[2] | (width == 64 ? uint64_t{constant[3]} << 32 : 0), width);
    case OpConstantTrue:
    case OpSpecConstantTrue:
      return 1;
    case OpConstantFalse:
    case OpSpecConstantFalse:
    case OpConstantNull:
      return 0;
    default:
      return {};
  }
}

// Evaluates an OpSpecConstantOp; returns nullopt if an operand is unknown.
std::optional<uint64_t> Int64Emulator::evaluate_constant(const Instruction& instruction) const {
  const uint32_t width = get_width(instruction[0]), op = instruction[2];
  const auto operand = [&](size_t i) {
    module_.find_definition_before(instruction, instruction[i]);  // guarantees that the recursion terminates
    return find_constant_value(instruction[i]);
  };
  const auto a = operand(3);
  if (width == 0 || !a) return {};
  const uint32_t operand_width = get_width(module_.definition(instruction[3])[0]);
  if (op == OpUConvert) return truncate_bits(*a, width);
  if (op == OpSConvert) return truncate_bits(static_cast<uint64_t>(sign_extend(*a, operand_width)), width);
  if (op == OpSelect) return operand(*a != 0 ? 4 : 5);
  const auto b = instruction.size() > 4 ? operand(4) : std::optional<uint64_t>(1);
  const auto result = b ? evaluate_binary(op, *a, *b, operand_width) : std::nullopt;
  return result ? std::optional(truncate_bits(*result, width)) : std::nullopt;
}

// Replaces a constant expression on 64-bit operands with its value; all specialization constants are known here.
void Int64Emulator::declare_constant_expression(const Instruction& instruction) {
  const uint32_t type = get_replacement_type(instruction[0]), id = instruction[1];
  const auto value = evaluate_constant(instruction);
  if (!value) {
    unsupported_.insert("such a constant, computed from specialization constants");
    return;
  }
  const uint32_t width = get_width(instruction[0]);
  const bool is_signed = width > 1 && module_.definition(instruction[0])[2] != 0;
  const auto low = static_cast<uint32_t>(*value), high = static_cast<uint32_t>(*value >> 32);
  if (is_int64(instruction[0]))
    globals_.add_instruction(OpConstantComposite, {pair_, id, globals_.declare_uint_constant(low), globals_.declare_uint_constant(high)});
  else if (module_.definition(instruction[0]).op == OpTypeBool)
    globals_.add_instruction(low != 0 ? OpConstantTrue : OpConstantFalse, {type, id});
  else
    globals_.add_instruction(OpConstant, {type, id, is_signed ? static_cast<uint32_t>(sign_extend(*value, width)) : low});
}

}  // namespace pumice::spirv
