// Emulates 64-bit integers on devices without shaderInt64.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace pumice {

struct Int64Emulation {
  std::vector<uint32_t> spirv;
  std::set<std::string> unsupported;  // unsupported uses of 64-bit integers; empty on success
};

// Replaces 64-bit integers in a module with pairs of words (uvec2, low word first); their memory layout is identical. Results are
// bit-exact. `constants`: values of specialization constants by id; 64-bit ones become plain constants.
Int64Emulation emulate_int64(std::span<const uint32_t> spirv, const std::map<uint32_t, uint64_t>& constants);

}  // namespace pumice
