// Finds how a shader samples its textures.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// The uses of each texture that a sampler with coordinates in texels does not support ("an offset"), by the id of the variable. Throws
// ShaderCompileError for a bias, which a compute shader has nothing to add to.
std::map<uint32_t, std::string> normalized_uses(const Module& module);

}  // namespace pumice::spirv
