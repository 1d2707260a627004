// Loads glslang through its C interface on first use, from the folder of the engine's module.
#pragma once

#include <string>
#include <string_view>

#include "shader/glslang/glslang_library.h"

namespace pumice {

// Loads libpumice_glslang.so. Throws Error if it is missing or from another build. Thread-safe.
const PumiceGlslang& get_glslang();

// Returns the glslang version that the engine was built with, without loading the library. It is part of every cache key.
std::string_view get_glslang_version();

// Returns whether this glslang supports a GLSL extension ("GL_EXT_bfloat16"). Compiles two lines, once per name. Thread-safe.
bool glslang_supports_extension(const std::string& extension);

}  // namespace pumice
