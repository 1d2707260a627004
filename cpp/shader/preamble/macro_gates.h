// Device macros that promise something of the shader compiler too.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// The GLSL extension that a shader which sees this device macro will use; empty where there is none.
std::string_view glsl_extension_of(std::string_view macro);

// Is the macro one that every device has, 0 or 1? Withheld it reads 0, and every other one is undefined.
bool always_defined(std::string_view macro);

}  // namespace pumice
