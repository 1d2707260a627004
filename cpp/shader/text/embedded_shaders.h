// The table of embedded shaders, written at build time from the files of shaders/.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace pumice {

struct EmbeddedShader {
  std::string_view path;
  std::string_view text;
};

extern const EmbeddedShader kEmbeddedShaders[];  // by path
extern const size_t kEmbeddedShaderCount;

// The text of an embedded shader. The environment variable PUMICE_SHADERS names a folder whose files take the place of embedded shaders of
// the same path, for tests that inject faults and for authors of kernels. Throws Error where the folder holds anything else.
std::optional<std::string_view> find_embedded_shader(std::string_view path);

// Text of a shader embedded in the engine at build time: "conv.comp", "include/tensor.glsl". Throws Error if unknown.
std::string_view embedded_shader(std::string_view path);
std::vector<std::string_view> embedded_shaders();

}  // namespace pumice
