#include <map>

#include "core/error.h"
#include "shader/spirv/variable_sizes.h"

namespace pumice::spirv {

uint32_t Module::get_constant_value(uint32_t id) const {
  const auto& instruction = definition(id);
  switch (instruction.op) {
    case OpConstant:
    case OpSpecConstant:
      return instruction[2];
    case OpConstantTrue:
    case OpSpecConstantTrue:
      return 1;
    case OpConstantFalse:
    case OpSpecConstantFalse:
      return 0;
    case OpSpecConstantOp: {
      const std::map<uint32_t, uint64_t> defaults;
      return static_cast<uint32_t>(VariableSizeEvaluator(*this, defaults).evaluate_constant(id));
    }
    default:
      throw ShaderCompileError("malformed SPIR-V: %" + std::to_string(id) + " is not a constant");
  }
}

}  // namespace pumice::spirv
