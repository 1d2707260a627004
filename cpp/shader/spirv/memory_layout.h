// The layout of values in memory: as std140 and std430 place them, and as a host's structures do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "shader/preamble/scalar_type.h"

namespace pumice {

struct MemoryMember;

// Axes are packed: one whose elements lie further apart has as many more as fit between them, so that an array of two vec3 is [2, 4].
struct MemoryLayout {
  ScalarType scalar = ScalarType::other;  // other: a structure of the members
  std::vector<uint32_t> axes;             // sizes of arrays, matrices (columns) and vectors, the outermost first; 0: any length
  uint32_t bytes = 0;                     // bytes of one scalar, or from one structure to the next
  std::vector<MemoryMember> members;

  uint64_t count() const;  // scalars or structures; an axis of any length counts as one
};

struct MemoryMember {
  std::string name;
  uint32_t offset = 0;
  MemoryLayout layout;
};

// "float32[2, 4]"; "a structure of 16 bytes"
std::string to_string(const MemoryLayout& layout);

}  // namespace pumice
