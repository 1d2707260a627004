// Finds, for each access in memory, the indices that must be less than a size, and the sizes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shader/spirv/declarations.h"
#include "shader/spirv/interface.h"
#include "shader/spirv/spirv_module.h"

namespace pumice {

// The path from a global variable to what is accessed.
struct Chain {
  uint32_t variable = 0;
  std::vector<uint32_t> indices;
  uint32_t pointer_type = 0;
};

// An index that must be less than a size.
struct Check {
  size_t level = 0;       // the position among the chain's indices
  uint32_t index = 0;     // the id that counts, of which the chain's may be made
  uint32_t length = 0;    // id of an array's own length; 0: none
  uint32_t count = 0;     // components of a vector or a matrix; 0: see length
  bool of_range = false;  // the size follows from the bytes that are bound, of which:
  uint32_t offset = 0, stride = 0, scalar = 0;
};

// The chains of a module's functions into buffers, push constants, shared and global variables, collected in the order of the instructions.
class AccessChains {
 public:
  AccessChains(const spirv::Module& module, const spirv::Declarations& declarations, const Interface& interface)
      : module_(module), declarations_(declarations), interface_(interface) {}

  void note(const spirv::Instruction& instruction);
  const Chain* find(uint32_t pointer) const;

  // The checks that an access needs. The array in a storage block is checked against the bytes that are bound; arrays within its elements,
  // and all others, against their own size. Constant indices into something of known size are left out: the compiler has checked them.
  std::vector<Check> checks(const Chain& chain) const;
  std::string path(const Chain& chain, size_t level) const;  // "x[].corners": what an index goes into
  size_t binding_position(uint32_t variable) const;

 private:
  bool is_checked(const spirv::Instruction& variable) const;
  bool is_block(uint32_t type) const { return module_.has(type, spirv::Block) || module_.has(type, spirv::BufferBlock); }
  uint32_t pointee(uint32_t variable) const { return module_.definition(module_.definition(variable)[0])[2]; }

  const spirv::Module& module_;
  const spirv::Declarations& declarations_;
  const Interface& interface_;
  std::unordered_map<uint32_t, Chain> chains_;
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> picks_;  // from the constant vector of a swizzle: index, count
  std::unordered_map<uint32_t, uint32_t> lanes_;                       // index of a word of two elements -> index of the element
};

}  // namespace pumice
