// Finds how a shader samples its textures.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// Returns, by variable id, a use of each texture that a sampler with unnormalized coordinates does not support ("an offset"). Throws
// ShaderCompileError for an LOD bias, which is meaningless in a compute shader.
std::map<uint32_t, std::string> find_normalized_uses(const Module& module);

}  // namespace pumice::spirv
