#include "shader/shader_cache.h"

#include <cstring>

#include "core/cache_file.h"
#include "core/hash.h"
#include "shader/glslang_loader.h"

namespace pumice {
namespace {

// Raised when entries of earlier builds must not be used.
constexpr uint64_t kFormat = 1;
constexpr std::string_view kKind = "spirv";
constexpr size_t kMaxEntries = 2048;

// The fixed part of an entry; the warnings (texts that end in NUL) and the SPIR-V follow.
struct EntryHead {
  uint32_t guarded = 0;
  uint32_t warning_bytes = 0;
};

std::optional<std::filesystem::path> path_of(const std::string& key) {
  const auto folder = cache_directory();
  if (!folder) return {};
  return *folder / "spirv" / key.substr(0, 2) / (key.substr(2) + ".spv");
}

void append(std::vector<std::byte>& payload, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  payload.insert(payload.end(), begin, begin + bytes);
}

std::vector<std::byte> serialize(const CompiledShader& shader) {
  std::string warnings;
  for (const auto& warning : shader.warnings) warnings += warning + '\0';
  const EntryHead head{shader.guarded ? 1u : 0u, static_cast<uint32_t>(warnings.size())};
  std::vector<std::byte> payload;
  append(payload, &head, sizeof head);
  append(payload, warnings.data(), warnings.size());
  append(payload, shader.spirv.data(), shader.spirv.size() * sizeof(uint32_t));
  return payload;
}

std::optional<CompiledShader> parse(std::span<const std::byte> payload) {
  EntryHead head;
  if (payload.size() < sizeof head) return {};
  std::memcpy(&head, payload.data(), sizeof head);
  payload = payload.subspan(sizeof head);
  if (head.warning_bytes > payload.size() || (payload.size() - head.warning_bytes) % sizeof(uint32_t) != 0) return {};
  CompiledShader shader;
  shader.guarded = head.guarded != 0;
  std::string_view warnings(reinterpret_cast<const char*>(payload.data()), head.warning_bytes);
  while (!warnings.empty()) {
    shader.warnings.emplace_back(warnings.substr(0, warnings.find('\0')));
    warnings.remove_prefix(std::min(shader.warnings.back().size() + 1, warnings.size()));
  }
  payload = payload.subspan(head.warning_bytes);
  shader.spirv.resize(payload.size() / sizeof(uint32_t));
  std::memcpy(shader.spirv.data(), payload.data(), payload.size());
  return shader;
}

}  // namespace

std::string shader_key(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options) {
  Sha256 hash;
  hash.field(kFormat)
      .field(glslang_version())
      .field(static_cast<uint64_t>(options.vulkan_minor))
      .field(head.version_and_preamble)
      .field(head.macros);
  for (const auto& file : sources.files()) hash.field(file.name).field(file.text);
  return hash.hex();
}

std::shared_ptr<const Shader> ShaderMemoryCache::find(const std::string& key) {
  const std::lock_guard guard(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

std::shared_ptr<const Shader> ShaderMemoryCache::insert(const std::string& key, std::shared_ptr<const Shader> shader) {
  const std::lock_guard guard(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->second;
  entries_.emplace_front(key, shader);
  by_key_[key] = entries_.begin();
  if (entries_.size() > kMaxEntries) {
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return shader;
}

std::optional<CompiledShader> read_cached_shader(const std::string& key) {
  const auto path = path_of(key);
  if (!path) return {};
  const auto payload = read_cache_file(*path, kKind);
  return payload ? parse(*payload) : std::nullopt;
}

void write_cached_shader(const std::string& key, const CompiledShader& shader) {
  if (const auto path = path_of(key)) write_cache_file(*path, kKind, serialize(shader));
}

}  // namespace pumice
