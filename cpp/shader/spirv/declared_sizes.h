// The sizes of numbers in a buffer as the shader declares them: a MemoryLayout has the gaps between them, too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pumice {
namespace spirv {
class Module;
}

struct DeclaredSizes {
  std::vector<uint32_t> sizes;                   // of arrays, matrices and vectors in the order of memory; 0: any length
  std::map<std::string, DeclaredSizes> members;  // of a structure
};

// Of a type; row_major: its matrices lie by rows. Throws ShaderCompileError for types that nest too deep.
DeclaredSizes declared_sizes(const spirv::Module& module, uint32_t type, bool row_major = false);
// Of the block at a binding. Throws ShaderCompileError where there is none.
DeclaredSizes declared_sizes(const std::vector<uint32_t>& spirv, uint32_t binding);

}  // namespace pumice
