// glslang behind its C interface: loaded from beside the engine's own module, on first use.
#pragma once

#include <string>
#include <string_view>

#include "shader/glslang/glslang_library.h"

namespace pumice {

// Loads libpumice_glslang.so. Throws Error where it is missing or of another build. Thread-safe.
const PumiceGlslang& glslang();

// The version that the engine was built with, known without loading anything: part of every cache key.
std::string_view glslang_version();

// Does this glslang know a GLSL extension ("GL_EXT_bfloat16")? Found out by compiling two lines, once per name. Thread-safe.
bool glslang_accepts(const std::string& extension);

}  // namespace pumice
