#include "shader/source/embedded_shaders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>

#include "core/error.h"
#include "core/log.h"

namespace pumice {
namespace {

namespace fs = std::filesystem;

std::span<const EmbeddedShader> get_embedded_table() {
  return {kEmbeddedShaders, kEmbeddedShaderCount};
}

std::string read_override_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Error("PUMICE_SHADERS: '" + file.string() + "' cannot be read");
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Reads the files in the folder PUMICE_SHADERS, keyed by the path of the embedded shader that each replaces.
std::map<std::string, std::string, std::less<>> read_overrides() {
  const char* const folder = std::getenv("PUMICE_SHADERS");
  std::map<std::string, std::string, std::less<>> overrides_by_path;
  if (!folder || !*folder) return overrides_by_path;
  if (!fs::is_directory(folder)) throw Error("PUMICE_SHADERS: expected a folder, given '" + std::string(folder) + "'");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().lexically_relative(folder).generic_string();
    if (std::ranges::find(get_embedded_table(), path, &EmbeddedShader::path) == get_embedded_table().end())
      throw Error("PUMICE_SHADERS: '" + std::string(folder) + "' contains '" + path + "', which is not the path of an embedded shader");
    overrides_by_path.emplace(path, read_override_file(entry.path()));
  }
  if (overrides_by_path.empty()) throw Error("PUMICE_SHADERS: '" + std::string(folder) + "' contains no files");
  std::string names;
  for (const auto& [path, text] : overrides_by_path) names += (names.empty() ? "" : ", ") + path;
  log(LogLevel::warning, "PUMICE_SHADERS: the engine's own " + names + " replaced by files of '" + std::string(folder) + "'");
  return overrides_by_path;
}

// Read once per process, because compiled kernels keep their source.
const std::map<std::string, std::string, std::less<>>& get_overrides() {
  static const auto overrides_by_path = read_overrides();
  return overrides_by_path;
}

}  // namespace

std::optional<std::string_view> find_embedded_shader(std::string_view path) {
  if (const auto override_ = get_overrides().find(path); override_ != get_overrides().end()) return override_->second;
  const auto found = std::ranges::find(get_embedded_table(), path, &EmbeddedShader::path);
  if (found == get_embedded_table().end()) return {};
  return found->text;
}

std::string_view get_embedded_shader(std::string_view path) {
  if (const auto text = find_embedded_shader(path)) return *text;
  std::string available;
  for (const auto& shader : get_embedded_table()) available += (available.empty() ? "" : ", ") + std::string(shader.path);
  throw Error("no embedded shader '" + std::string(path) + "'; there are: " + available);
}

std::vector<std::string_view> list_embedded_shaders() {
  std::vector<std::string_view> paths;
  for (const auto& shader : get_embedded_table()) paths.push_back(shader.path);
  return paths;
}

}  // namespace pumice
