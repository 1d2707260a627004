#include "shader/text/embedded_shaders.h"

#include <algorithm>
#include <span>

#include "core/error.h"

namespace pumice {
namespace {

std::span<const EmbeddedShader> table() {
  return {kEmbeddedShaders, kEmbeddedShaderCount};
}

}  // namespace

std::optional<std::string_view> find_embedded_shader(std::string_view path) {
  const auto found = std::ranges::find(table(), path, &EmbeddedShader::path);
  if (found == table().end()) return {};
  return found->text;
}

std::string_view embedded_shader(std::string_view path) {
  if (const auto text = find_embedded_shader(path)) return *text;
  std::string known;
  for (const auto& shader : table()) known += (known.empty() ? "" : ", ") + std::string(shader.path);
  throw Error("no embedded shader '" + std::string(path) + "'; there are: " + known);
}

std::vector<std::string_view> embedded_shaders() {
  std::vector<std::string_view> paths;
  for (const auto& shader : table()) paths.push_back(shader.path);
  return paths;
}

}  // namespace pumice
