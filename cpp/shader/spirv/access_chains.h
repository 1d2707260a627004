// Finds, for each memory access, the indices to check and their bounds.
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

// The path from a global variable to the accessed element.
struct AccessChain {
  uint32_t variable = 0;
  std::vector<uint32_t> indices;
  uint32_t pointer_type = 0;
};

// An index that must be less than a bound.
struct IndexCheck {
  size_t level = 0;               // position in the chain's indices
  uint32_t index = 0;             // id to check; the chain's index may be derived from it
  uint32_t length = 0;            // id of an array's declared length; 0: none
  uint32_t count = 0;             // components of a vector or columns of a matrix; 0: see length
  bool uses_bound_range = false;  // the bound follows from the size of the bound range and the members below
  uint32_t offset = 0, stride = 0, scalar = 0;
};

// The access chains of a module into buffers, push constants, shared and global variables, collected in instruction order.
class AccessChains {
 public:
  AccessChains(const spirv::Module& module, const spirv::Declarations& declarations, const ShaderInterface& interface)
      : module_(module), declarations_(declarations), interface_(interface) {}

  void add_instruction(const spirv::Instruction& instruction);
  const AccessChain* find(uint32_t pointer) const;

  // Returns the checks that an access needs. The array of a storage block is checked against the bound range; nested and all other arrays
  // against their declared sizes. Constant indices into arrays of known size are skipped: the compiler has checked them.
  std::vector<IndexCheck> find_checks(const AccessChain& chain) const;
  std::string format_path(const AccessChain& chain, size_t level) const;  // source path of the indexed array or vector: "x[].corners"
  size_t find_binding_index(uint32_t variable) const;

 private:
  bool is_checked_variable(const spirv::Instruction& variable) const;
  bool is_block(uint32_t type) const {
    return module_.has_decoration(type, spirv::Block) || module_.has_decoration(type, spirv::BufferBlock);
  }
  uint32_t get_pointee_type(uint32_t variable) const { return module_.definition(module_.definition(variable)[0])[2]; }

  const spirv::Module& module_;
  const spirv::Declarations& declarations_;
  const ShaderInterface& interface_;
  std::unordered_map<uint32_t, AccessChain> chains_;
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>>
      swizzles_;                                            // result of a dynamic swizzle -> (component index id, component count)
  std::unordered_map<uint32_t, uint32_t> packed_elements_;  // word index -> element index that it was computed from
};

}  // namespace pumice
