#include "shader/spirv/int64_comparisons.h"

#include <algorithm>
#include <optional>

#include "shader/spirv/declarations.h"
#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {
namespace {

// Returns the comparison that is equivalent if both operands are complemented.
std::optional<uint16_t> swap_comparison(uint16_t op) {
  switch (op) {
    case OpSLessThan:
      return OpSGreaterThan;
    case OpSGreaterThan:
      return OpSLessThan;
    case OpSLessThanEqual:
      return OpSGreaterThanEqual;
    case OpSGreaterThanEqual:
      return OpSLessThanEqual;
    default:
      return std::nullopt;
  }
}

bool is_int64_type(const Module& module, uint32_t type) {
  const Instruction* definition = &module.definition(type);
  if (definition->op == OpTypeVector) definition = &module.definition((*definition)[1]);
  return definition->op == OpTypeInt && (*definition)[1] == 64;
}

}  // namespace

std::vector<uint32_t> complement_int64_comparisons(std::span<const uint32_t> words) {
  if (std::ranges::none_of(parse_instructions(words),
                           [](const Instruction& instruction) { return instruction.op == OpTypeInt && instruction[1] == 64; }))
    return {words.begin(), words.end()};
  const Module module(words);
  Declarations declarations(module, words[kBoundWord]);
  std::vector<uint32_t> head(words.begin(), words.begin() + kHeaderWords), body;
  bool in_function = false;
  for (const Instruction& instruction : module.instructions()) {
    in_function = in_function || instruction.op == OpFunction;
    std::vector<uint32_t> operands(instruction.operands.begin(), instruction.operands.end());
    uint16_t op = instruction.op;
    if (const auto other = in_function ? swap_comparison(op) : std::nullopt) {
      const uint32_t a = instruction[2], b = instruction[3];
      if ((declarations.is_global(a) || declarations.is_global(b)) && is_int64_type(module, declarations.get_value_type(a))) {
        op = *other;
        for (const size_t i : {2, 3}) {
          const uint32_t complement = declarations.new_id();
          append(body, OpNot, {declarations.get_value_type(operands[i]), complement, operands[i]});
          operands[i] = complement;
        }
      }
    }
    append(in_function ? body : head, op, operands);
  }
  return declarations.assemble_module(std::move(head), body);
}

}  // namespace pumice::spirv
