// Compiled shaders by the hash of everything they were made of: in memory, and on disk between processes.
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

// The name of an entry: a hash of texts, options and compiler version. Loads nothing.
std::string shader_key(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                       const std::optional<LocalSize>& local_size);

// Shaders of this process, the most recently used ones. Thread-safe.
class ShaderMemoryCache {
 public:
  std::shared_ptr<const Shader> find(const std::string& key);
  std::shared_ptr<const Shader> insert(const std::string& key, std::shared_ptr<const Shader> shader);  // an entry that is there stays

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Shader>>;

  std::mutex mutex_;
  std::list<Entry> entries_;  // the latest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

// The payload of an entry on disk, and back; none if the bytes are not such a payload.
std::vector<std::byte> serialize_shader(const CompiledShader& shader);
std::optional<CompiledShader> parse_shader(std::span<const std::byte> payload);

// Entries on disk; none if the cache is off, or if the entry is damaged.
std::optional<CompiledShader> read_cached_shader(const std::string& key);
void write_cached_shader(const std::string& key, const CompiledShader& shader);

}  // namespace pumice
