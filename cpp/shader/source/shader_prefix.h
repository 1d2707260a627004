// The text that the engine prepends to a shader's source.
#pragma once

#include <string>

namespace pumice {

// Version and preamble, then macros.
struct ShaderPrefix {
  std::string version_and_preamble;
  std::string macros;
};

}  // namespace pumice
