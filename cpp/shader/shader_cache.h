// Memory and disk caches of compiled shaders, keyed by a hash of all compilation inputs.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shader/compiler.h"
#include "shader/shader.h"

namespace pumice {

// Returns the cache key: a hash of sources, options and compiler version. Does not load glslang.
std::string compute_shader_key(const SourceSet& sources, const ShaderPrefix& prefix, const ShaderOptions& options,
                               const std::optional<LocalSize>& local_size);

// LRU cache of this process's shaders. Thread-safe.
class ShaderMemoryCache {
 public:
  std::shared_ptr<const Shader> find(const std::string& key);
  std::shared_ptr<const Shader> insert(const std::string& key, std::shared_ptr<const Shader> shader);  // returns the existing entry, if any

 private:
  using ShaderCacheEntry = std::pair<std::string, std::shared_ptr<const Shader>>;

  std::mutex mutex_;
  std::list<ShaderCacheEntry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<ShaderCacheEntry>::iterator> by_key_;
};

// Convert a shader to and from the format of the disk cache. parse_shader() returns nullopt if the payload is invalid.
std::vector<std::byte> serialize_shader(const CompiledShader& shader);
std::optional<CompiledShader> parse_shader(std::span<const std::byte> payload);

// Read and write an entry of the disk cache. read_cached_shader() returns nullopt if the cache is off or the entry is missing or damaged.
std::optional<CompiledShader> read_cached_shader(const std::string& key);
void write_cached_shader(const std::string& key, const CompiledShader& shader);

}  // namespace pumice
