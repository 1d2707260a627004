// The texts that the engine puts before a shader's own text.
#pragma once

#include <string>

namespace pumice {

// Version and preamble, then macros.
struct ShaderHead {
  std::string version_and_preamble;
  std::string macros;
};

}  // namespace pumice
