// Descriptor sets of a shader: the engine binds all buffers and images in set 0.
#pragma once

#include <cstdint>
#include <vector>

namespace pumice {

// Moves variables of other descriptor sets to set 0, to binding numbers after those of that set, in the order of set and binding.
void flatten_sets(std::vector<uint32_t>& spirv);

}  // namespace pumice
