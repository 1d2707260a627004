// Descriptor sets of a shader: the engine binds all buffers and images in set 0.
#pragma once

#include <cstdint>
#include <vector>

namespace pumice {

// Moves variables of other descriptor sets to set 0, with binding numbers after the existing ones, in order of set and binding.
void flatten_descriptor_sets(std::vector<uint32_t>& spirv);

}  // namespace pumice
