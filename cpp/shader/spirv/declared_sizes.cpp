#include "shader/spirv/declared_sizes.h"

#include "core/error.h"
#include "shader/spirv/spirv_module.h"

namespace pumice {
namespace {

using namespace spirv;

bool is_array(const Instruction& type) {
  return type.op == OpTypeArray || type.op == OpTypeRuntimeArray;
}

DeclaredSizes read_type_sizes(const Module& module, uint32_t type, bool row_major, int depth) {
  if (depth > kMaxTypeDepth) throw ShaderCompileError("malformed SPIR-V: types nest too deeply");
  DeclaredSizes declared;
  const auto* definition = &module.definition(type);
  for (; is_array(*definition); definition = &module.definition(type = (*definition)[1])) {
    if (declared.sizes.size() > static_cast<size_t>(kMaxTypeDepth)) throw ShaderCompileError("malformed SPIR-V: types nest too deeply");
    declared.sizes.push_back(definition->op == OpTypeArray ? module.get_constant_value((*definition)[2]) : 0);
  }
  if (definition->op == OpTypeMatrix) {
    const uint32_t columns = (*definition)[2], rows = module.definition((*definition)[1])[2];
    declared.sizes.push_back(row_major ? rows : columns);
    declared.sizes.push_back(row_major ? columns : rows);
  } else if (definition->op == OpTypeVector) {
    declared.sizes.push_back((*definition)[2]);
  } else if (definition->op == OpTypeStruct) {
    for (uint32_t i = 0; i + 1 < definition->size(); ++i)
      declared.members[module.member_name(type, i)] =
          read_type_sizes(module, (*definition)[i + 1], module.find_member_decoration(type, i, RowMajor).has_value(), depth + 1);
  }
  return declared;
}

}  // namespace

DeclaredSizes get_declared_sizes(const Module& module, uint32_t type, bool row_major) {
  return read_type_sizes(module, type, row_major, 0);
}

DeclaredSizes get_declared_sizes(const std::vector<uint32_t>& spirv, uint32_t binding) {
  const Module module(spirv);
  for (const auto& instruction : module.instructions()) {
    if (instruction.op != OpVariable || module.find_decoration(instruction[1], Binding) != binding) continue;
    uint32_t type = module.definition(instruction[0])[2];
    if (is_array(module.definition(type))) type = module.definition(type)[1];
    if (module.definition(type).op == OpTypeStruct) return read_type_sizes(module, type, false, 0);
  }
  throw ShaderCompileError("no block has binding " + std::to_string(binding));
}

}  // namespace pumice
