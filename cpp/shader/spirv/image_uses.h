// How a shader samples its textures.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "shader/spirv/spirv_module.h"

namespace pumice::spirv {

// By variable: what is done to a texture that a sampler with coordinates in texels does not do ("an offset"). Throws ShaderCompileError
// for a bias, which a compute shader has nothing to add to.
std::map<uint32_t, std::string> normalized_uses(const Module& module);

}  // namespace pumice::spirv
