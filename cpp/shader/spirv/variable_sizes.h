// Computes the sizes of a shader's variables for given specialization constants.
#pragma once

#include <cstdint>
#include <map>

#include "shader/spirv/spirv_module.h"

namespace pumice {

class VariableSizeEvaluator {
 public:
  // `constants`: values by specialization id; all others keep their defaults.
  VariableSizeEvaluator(const spirv::Module& module, const std::map<uint32_t, uint64_t>& constants)
      : module_(module), constants_(constants) {}
  uint64_t compute_total_bytes(
      uint32_t storage) const;  // total size of the variables in a storage class, without padding: a lower bound on every device
  uint64_t evaluate_constant(uint32_t id, int depth = 0) const;  // value of an integer constant

 private:
  uint64_t get_type_bytes(uint32_t type, int depth) const;
  uint64_t compute_type_bytes(uint32_t type, int depth) const;
  uint64_t compute_constant_value(uint32_t id, int depth) const;
  uint64_t evaluate_operation(const spirv::Instruction& operation, int depth) const;

  const spirv::Module& module_;
  const std::map<uint32_t, uint64_t>& constants_;
  mutable std::map<uint32_t, uint64_t> types_, values_;  // memo, by id
};

}  // namespace pumice
