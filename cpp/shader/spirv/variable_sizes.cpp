#include "shader/spirv/variable_sizes.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace pumice {

using namespace spirv;

namespace {

constexpr uint64_t kMaxArrayLength = 0x7fffffff;
constexpr int kMaxVariableDepth = 256;  // depth limit, because a malformed type or constant may contain itself
constexpr uint64_t kMaxTotalBytes = uint64_t{1} << 40;

uint64_t saturating_product(uint64_t a, uint64_t b) {
  return b != 0 && a > kMaxTotalBytes / b ? kMaxTotalBytes : a * b;
}

void check_depth(int depth) {
  if (depth > kMaxVariableDepth)
    throw ShaderCompileError("malformed SPIR-V: shared variables nest deeper than " + std::to_string(kMaxVariableDepth));
}

}  // namespace

uint64_t VariableSizeEvaluator::compute_total_bytes(uint32_t storage) const {
  uint64_t sum = 0;
  for (const auto& instruction : module_.instructions()) {
    if (instruction.op == OpTypeArray)
      get_type_bytes(instruction[0], 0);  // rejects zero-length arrays anywhere, because they can crash a driver
    if (instruction.op != OpVariable || instruction[2] != storage || module_.name(instruction[1]).starts_with("pumice_")) continue;
    sum = std::min(kMaxTotalBytes, sum + get_type_bytes(module_.definition(instruction[0])[2], 0));
  }
  return sum;
}

uint64_t VariableSizeEvaluator::get_type_bytes(uint32_t type, int depth) const {
  check_depth(depth);
  if (const auto known = types_.find(type); known != types_.end()) return known->second;
  return types_[type] = compute_type_bytes(type, depth);
}

uint64_t VariableSizeEvaluator::evaluate_constant(uint32_t id, int depth) const {
  check_depth(depth);
  if (const auto known = values_.find(id); known != values_.end()) return known->second;
  return values_[id] = compute_constant_value(id, depth);
}

uint64_t VariableSizeEvaluator::compute_type_bytes(uint32_t type, int depth) const {
  const auto& definition = module_.definition(type);
  switch (definition.op) {
    case OpTypeBool:
      return 4;
    case OpTypeInt:
    case OpTypeFloat:
      return definition[1] / 8;
    case OpTypeVector:
    case OpTypeMatrix:
      return saturating_product(definition[2], get_type_bytes(definition[1], depth + 1));
    case OpTypeArray: {
      const uint64_t length = evaluate_constant(definition[2], depth + 1);
      const auto spec = module_.find_decoration(definition[2], SpecId);
      if (spec && constants_.contains(*spec) && (length == 0 || length > kMaxArrayLength))
        throw BindingError("K2", "specialization constant", module_.name(definition[2]),
                           "an array length from 1 to " + std::to_string(kMaxArrayLength), std::to_string(static_cast<int32_t>(length)));
      return saturating_product(length, get_type_bytes(definition[1], depth + 1));
    }
    case OpTypeStruct: {
      uint64_t sum = 0;
      for (size_t member = 1; member < definition.size(); ++member)
        sum = std::min(kMaxTotalBytes, sum + get_type_bytes(definition[member], depth + 1));
      return sum;
    }
    default:
      return 0;
  }
}

// Handles signed and unsigned 32-bit integers, the types of array sizes.
uint64_t VariableSizeEvaluator::compute_constant_value(uint32_t id, int depth) const {
  const auto& definition = module_.definition(id);
  if (const auto spec = module_.find_decoration(id, SpecId))
    if (const auto specialized = constants_.find(*spec); specialized != constants_.end()) return static_cast<uint32_t>(specialized->second);
  if (definition.op == OpConstantNull) return 0;
  return definition.op == OpSpecConstantOp ? static_cast<uint32_t>(evaluate_operation(definition, depth)) : module_.get_constant_value(id);
}

uint64_t VariableSizeEvaluator::evaluate_operation(const Instruction& operation, int depth) const {
  const auto operand = [&](size_t i) { return static_cast<uint32_t>(evaluate_constant(operation[3 + i], depth + 1)); };
  const auto signed_operand = [&](size_t i) { return static_cast<int64_t>(static_cast<int32_t>(operand(i))); };
  const auto divisor = [&] {
    const int64_t value = signed_operand(1);
    if (value == 0) throw ShaderCompileError("the size of a shared array is divided by 0");
    return value;
  };
  switch (operation[2]) {
    case OpCompositeExtract:  // an element of gl_WorkGroupSize
      return evaluate_constant(module_.definition(operation[3])[2 + size_t{operation[4]}], depth + 1);
    case OpUConvert:
    case OpSConvert:
      return operand(0);
    case OpSNegate:
      return 0 - operand(0);
    case OpIAdd:
      return operand(0) + operand(1);
    case OpISub:
      return operand(0) - operand(1);
    case OpIMul:
      return operand(0) * operand(1);
    case OpUDiv:
      return divisor() ? operand(0) / operand(1) : 0;
    case OpUMod:
      return divisor() ? operand(0) % operand(1) : 0;
    case OpSDiv:
      return static_cast<uint64_t>(signed_operand(0) / divisor());
    case OpSRem:
      return static_cast<uint64_t>(signed_operand(0) % divisor());
    case OpSMod: {
      const int64_t by = divisor(), rest = signed_operand(0) % by;
      return static_cast<uint64_t>(rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest);
    }
    case OpLogicalOr:
    case OpBitwiseOr:
      return operand(0) | operand(1);
    case OpLogicalAnd:
    case OpBitwiseAnd:
      return operand(0) & operand(1);
    case OpBitwiseXor:
      return operand(0) ^ operand(1);
    case OpLogicalNot:
      return operand(0) == 0;
    case OpNot:
      return ~operand(0);
    case OpSelect:
      return operand(0) ? operand(1) : operand(2);
    case OpIEqual:
      return operand(0) == operand(1);
    case OpINotEqual:
      return operand(0) != operand(1);
    case OpUGreaterThan:
      return operand(0) > operand(1);
    case OpSGreaterThan:
      return signed_operand(0) > signed_operand(1);
    case OpUGreaterThanEqual:
      return operand(0) >= operand(1);
    case OpSGreaterThanEqual:
      return signed_operand(0) >= signed_operand(1);
    case OpULessThan:
      return operand(0) < operand(1);
    case OpSLessThan:
      return signed_operand(0) < signed_operand(1);
    case OpULessThanEqual:
      return operand(0) <= operand(1);
    case OpSLessThanEqual:
      return signed_operand(0) <= signed_operand(1);
    case OpShiftLeftLogical:
      return operand(1) < 32 ? operand(0) << operand(1) : 0;
    case OpShiftRightLogical:
      return operand(1) < 32 ? operand(0) >> operand(1) : 0;
    case OpShiftRightArithmetic:
      return static_cast<uint64_t>(signed_operand(0) >> std::min(operand(1), 31u));
    default:
      return 0;  // not an integer: left to the driver
  }
}

}  // namespace pumice
