// Finds how a shader samples its textures.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// Returns, by variable id, the textures that are used in a way that requires normalized coordinates, and that use ("an offset"). Throws
// ShaderCompileError for an LOD bias, which is meaningless in a compute shader.
std::map<uint32_t, std::string> find_normalized_coordinate_uses(const Module& module);

}  // namespace pumice::spirv
