// Memory layouts of values: std140, std430 and structures on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "shader/preamble/scalar_type.h"

namespace pumice {

struct MemoryMember;

// The layout of a value in memory. Axes have no gaps: padding between elements lengthens an axis, so an array of two vec3 is [2, 4].
struct MemoryLayout {
  ScalarType scalar = ScalarType::other;  // `other` means a structure with `members`
  std::vector<uint32_t> axes;             // array, column and vector sizes, outermost first; 0: runtime length
  uint32_t bytes = 0;                     // size of one scalar, or stride of a structure
  std::vector<MemoryMember> members;

  uint64_t element_count() const;  // number of scalars or structures; a runtime axis counts as one
};

struct MemoryMember {
  std::string name;
  uint32_t offset = 0;
  MemoryLayout layout;
};

// For messages: "float32[2, 4]"; "a structure of 16 bytes"
std::string to_string(const MemoryLayout& layout);

}  // namespace pumice
