// A generated main around a shader's own, for shaders that leave the workgroup size to the engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shader/tokens.h"

namespace pumice {

// What is put before, into and after the user's text. Empty strings where the shader declares a local size itself.
struct Guard {
  std::string before, text, after;
};

// Extra invocations return at once: their number comes as push constants pumice_threads_x, _y, _z. Throws ShaderCompileError for
// texts with barriers, shared memory or subgroup operations, which have to declare a local size.
Guard make_guard(const std::string& source, const std::string& name, const std::vector<Token>& tokens);

}  // namespace pumice
