// The table of embedded shaders, generated at build time from shaders/.
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

extern const EmbeddedShader kEmbeddedShaders[];  // sorted by path
extern const size_t kEmbeddedShaderCount;

// Returns the source of an embedded shader. The environment variable PUMICE_SHADERS names a folder whose files override embedded shaders
// with the same path, for fault injection and for kernel authors. Throws Error if the folder has any other file.
std::optional<std::string_view> find_embedded_shader(std::string_view path);

// Returns the source of a shader embedded at build time: "conv.comp", "include/tensor.glsl". Throws Error if unknown.
std::string_view get_embedded_shader(std::string_view path);
std::vector<std::string_view> list_embedded_shaders();

}  // namespace pumice
