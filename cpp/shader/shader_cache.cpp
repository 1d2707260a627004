#include "shader/shader_cache.h"

#include <cstring>
#include <map>
#include <mutex>

#include "core/cache_file.h"
#include "core/error.h"

namespace pumice {
namespace {

constexpr const char* kKind = "spirv";

std::optional<std::filesystem::path> path_of(const std::string& key) {
  const auto folder = cache_directory();
  if (!folder) return {};
  return *folder / "shaders" / key.substr(0, 2) / (key.substr(2) + ".bin");
}

std::shared_ptr<const Shader> read(const std::string& key, const std::string& name) {
  const auto path = path_of(key);
  const auto bytes = path ? read_cache_file(*path, kKind) : std::nullopt;
  if (!bytes || bytes->size() % 4 != 0) return nullptr;
  auto shader = std::make_shared<Shader>();
  shader->name = name;
  shader->spirv.resize(bytes->size() / 4);
  std::memcpy(shader->spirv.data(), bytes->data(), bytes->size());
  try {
    shader->interface = reflect(shader->spirv);
  } catch (const Error&) {  // not ours after all: compile again
    return nullptr;
  }
  return shader;
}

}  // namespace

struct ShaderCache::State {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Shader>> shaders;
  CompileCounts counts;
};

ShaderCache::ShaderCache() : state_(*new State) {}

ShaderCache& ShaderCache::instance() {
  static ShaderCache cache;
  return cache;
}

std::shared_ptr<const Shader> ShaderCache::find(const std::string& key, const std::string& name) {
  {
    const std::lock_guard lock(state_.mutex);
    if (const auto found = state_.shaders.find(key); found != state_.shaders.end()) {
      ++state_.counts.from_memory;
      return found->second;
    }
  }
  auto shader = read(key, name);
  if (!shader) return nullptr;
  const std::lock_guard lock(state_.mutex);
  ++state_.counts.from_disk;
  return state_.shaders.emplace(key, std::move(shader)).first->second;
}

std::shared_ptr<const Shader> ShaderCache::add(const std::string& key, std::shared_ptr<const Shader> shader) {
  if (const auto path = path_of(key)) write_cache_file(*path, kKind, std::as_bytes(std::span(shader->spirv)));
  const std::lock_guard lock(state_.mutex);
  ++state_.counts.compiled;
  return state_.shaders.emplace(key, std::move(shader)).first->second;
}

CompileCounts ShaderCache::counts() {
  const std::lock_guard lock(state_.mutex);
  return state_.counts;
}

}  // namespace pumice
