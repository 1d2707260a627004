// Array sizes in a buffer as the shader declares them; a MemoryLayout also counts the padding.
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
  std::vector<uint32_t> sizes;                   // sizes of arrays, matrices and vectors in memory order; 0: runtime length
  std::map<std::string, DeclaredSizes> members;  // members of a structure
};

// Returns the sizes of a type; row_major: its matrices are stored row by row. Throws ShaderCompileError for excessive nesting.
DeclaredSizes get_declared_sizes(const spirv::Module& module, uint32_t type, bool row_major = false);
// Returns the sizes of the block at a binding. Throws ShaderCompileError if there is none.
DeclaredSizes get_declared_sizes(const std::vector<uint32_t>& spirv, uint32_t binding);

}  // namespace pumice
