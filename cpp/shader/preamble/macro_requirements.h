// Device macros that also require support in the shader compiler.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// Returns the GLSL extension that a shader will use if it sees this device macro; empty if none.
std::string_view get_required_glsl_extension(std::string_view macro);

// Returns whether every device defines this macro as 0 or 1. If such a macro is withheld, it is defined as 0; other withheld macros are
// undefined.
bool is_always_defined(std::string_view macro);

}  // namespace pumice
