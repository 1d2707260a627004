#include "shader/spirv/access_chains.h"

#include <algorithm>
#include <tuple>

namespace pumice {

using namespace spirv;

namespace {

constexpr std::string_view kWordFunction = "pm_word(";  // preamble function that returns the word containing a 16-bit element
constexpr uint32_t kElementBytes = 2;

}  // namespace

bool AccessChains::is_checked_variable(const Instruction& variable) const {
  const uint32_t type = module_.definition(variable[0])[2];
  if (module_.name(type).starts_with("pumice_") || module_.name(variable[1]).starts_with("pumice_")) return false;
  switch (variable[2]) {
    case kStorageBuffer:
    case kUniform:
    case kPushConstant:
      return is_block(type);
    case kWorkgroup:
    case kPrivate:
      return true;
    default:
      return false;
  }
}

void AccessChains::add_instruction(const Instruction& instruction) {
  if (instruction.op == OpVectorExtractDynamic && declarations_.is_global(instruction[2])) {
    const uint32_t type = declarations_.get_value_type(instruction[2]);
    swizzles_[instruction[1]] = {instruction[3], module_.definition(type)[2]};
  }
  if (instruction.op == OpFunctionCall && instruction.size() == 4 && module_.name(instruction[2]).starts_with(kWordFunction))
    packed_elements_[instruction[1]] = instruction[3];
  if (instruction.op != OpAccessChain && instruction.op != OpInBoundsAccessChain) return;
  AccessChain chain;
  chain.pointer_type = instruction[0];
  if (const AccessChain* outer = find(instruction[2])) {
    chain.variable = outer->variable;
    chain.indices = outer->indices;
  } else {
    if (!declarations_.is_global(instruction[2])) return;
    const auto& variable = module_.definition(instruction[2]);
    if (variable.op != OpVariable || !is_checked_variable(variable)) return;
    chain.variable = instruction[2];
  }
  chain.indices.insert(chain.indices.end(), instruction.operands.begin() + 3, instruction.operands.end());
  chains_[instruction[1]] = std::move(chain);
}

const AccessChain* AccessChains::find(uint32_t pointer) const {
  const auto found = chains_.find(pointer);
  return found == chains_.end() ? nullptr : &found->second;
}

std::vector<IndexCheck> AccessChains::find_checks(const AccessChain& chain) const {
  std::vector<IndexCheck> checks;
  const uint32_t outermost = get_pointee_type(chain.variable);
  const uint32_t storage = module_.definition(chain.variable)[2];
  const bool has_range = storage == kStorageBuffer || (storage == kUniform && module_.has_decoration(outermost, BufferBlock));
  uint32_t type = outermost;
  for (size_t level = 0; level < chain.indices.size(); ++level) {
    const auto& definition = module_.definition(type);
    const uint32_t index = chain.indices[level];
    if (definition.op == OpTypeStruct) {
      type = definition[module_.get_constant_value(index) + 1];
      continue;
    }
    const bool is_array = definition.op == OpTypeArray, is_runtime_array = definition.op == OpTypeRuntimeArray;
    const bool is_constant = declarations_.is_global(index) && module_.definition(index).op == OpConstant;
    IndexCheck check{.level = level, .index = index};
    if (is_array) check.length = definition[2];
    if (!is_array && !is_runtime_array) check.count = definition[2];
    if (const auto swizzle = swizzles_.find(index); swizzle != swizzles_.end()) std::tie(check.index, check.count) = swizzle->second;
    const uint32_t stride = module_.find_decoration(type, ArrayStride).value_or(0);
    if (has_range && level == 1 && stride > 0 && (is_array || is_runtime_array)) {
      check.uses_bound_range = true;
      check.offset = module_.find_member_decoration(outermost, module_.get_constant_value(chain.indices[0]), Offset).value_or(0);
      check.stride = stride;
      check.scalar = bytes(interface_.bindings.at(find_binding_index(chain.variable)).scalar);
      if (const auto element = packed_elements_.find(index); element != packed_elements_.end()) {
        check.index = element->second;
        check.stride = check.scalar = kElementBytes;
      }
    }
    if (check.uses_bound_range || (!is_runtime_array && !is_constant)) checks.push_back(check);
    type = definition[1];
  }
  return checks;
}

std::string AccessChains::format_path(const AccessChain& chain, size_t level) const {
  uint32_t type = get_pointee_type(chain.variable);
  std::string text = is_block(type) ? "" : module_.name(chain.variable);
  for (size_t i = 0; i < level; ++i) {
    const auto& definition = module_.definition(type);
    const bool is_member = definition.op == OpTypeStruct;
    const uint32_t member = is_member ? module_.get_constant_value(chain.indices[i]) : 0;
    text += !is_member ? "[]" : (text.empty() ? "" : ".") + module_.member_name(type, member);
    type = definition[is_member ? member + 1 : 1];
  }
  return text;
}

size_t AccessChains::find_binding_index(uint32_t variable) const {
  const uint32_t number = module_.find_decoration(variable, Binding).value_or(0);
  return static_cast<size_t>(std::ranges::find(interface_.bindings, number, &BindingInterface::binding) - interface_.bindings.begin());
}

}  // namespace pumice
