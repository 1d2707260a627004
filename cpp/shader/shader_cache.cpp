#include "shader/shader_cache.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/files/cache_file.h"
#include "core/files/hash.h"
#include "shader/debug/invocation_guard.h"
#include "shader/source/glslang_loader.h"

namespace pumice {
namespace {

// Format version of entries. Increase it to invalidate the entries of earlier builds.
constexpr uint64_t kFormat = 9;
constexpr std::string_view kKind = "spirv";
constexpr size_t kMaxEntries = 2048;

// Header of a cache entry. NUL-terminated strings and the SPIR-V follow it.
struct CacheEntryHeader {
  uint32_t guarded = 0, chooses_local_size = 0, local_size_must_divide = 0;
  uint32_t warnings = 0, formats = 0, accesses = 0;
  uint32_t string_bytes = 0;
};

std::string get_cache_entry_name(const std::string& key) {
  return key.substr(0, 2) + "/" + key.substr(2);
}

void append_bytes(std::vector<std::byte>& payload, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  payload.insert(payload.end(), begin, begin + bytes);
}

// Reads the strings of an entry in order; throws Error if there are no more.
class StringReader {
 public:
  explicit StringReader(std::string_view strings) : strings_(strings) {}

  std::string read_string() {
    const size_t end = strings_.find('\0');
    if (end == std::string_view::npos) throw Error("a cached shader lacks a string");
    const std::string found(strings_.substr(0, end));
    strings_.remove_prefix(end + 1);
    return found;
  }

  uint32_t read_number() {
    const std::string digits = read_string();
    uint32_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }

  bool is_at_end() const { return strings_.empty(); }

 private:
  std::string_view strings_;
};

}  // namespace

std::string compute_shader_key(const SourceSet& sources, const ShaderPrefix& prefix, const ShaderOptions& options,
                               const std::optional<LocalSize>& local_size) {
  Sha256 hash;
  hash.add_field(kFormat)
      .add_field(get_glslang_version())
      .add_field(static_cast<uint64_t>(options.vulkan_minor))
      .add_field(static_cast<uint64_t>(options.debug))
      .add_field(static_cast<uint64_t>(options.guard))
      .add_field(static_cast<uint64_t>(options.guard_declared))
      .add_field(local_size ? make_local_size_declaration(*local_size) : std::string())
      .add_field(prefix.version_and_preamble)
      .add_field(prefix.macros);
  for (const auto& file : sources.files()) hash.add_field(file.name).add_field(file.text);
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

std::vector<std::byte> serialize_shader(const CompiledShader& shader) {
  std::string strings;
  const auto add = [&](const std::string& text) { strings += text + '\0'; };
  add(shader.missing_local_size_error);
  for (const auto& warning : shader.warnings) add(warning);
  for (const auto& format : shader.debug.formats) add(format.file), add(std::to_string(format.line)), add(format.text);
  for (const auto& access : shader.debug.accesses) {
    add(access.file), add(std::to_string(access.line)), add(access.buffer);
    add(std::string(access.signed_index ? "s" : "u") + (access.writes ? "w" : "r"));
  }
  CacheEntryHeader header{shader.guarded,
                          shader.chooses_local_size,
                          shader.local_size_must_divide,
                          static_cast<uint32_t>(shader.warnings.size()),
                          static_cast<uint32_t>(shader.debug.formats.size()),
                          static_cast<uint32_t>(shader.debug.accesses.size()),
                          static_cast<uint32_t>(strings.size())};
  std::vector<std::byte> payload;
  append_bytes(payload, &header, sizeof header);
  append_bytes(payload, strings.data(), strings.size());
  append_bytes(payload, shader.spirv.data(), shader.spirv.size() * sizeof(uint32_t));
  return payload;
}

std::optional<CompiledShader> parse_shader(std::span<const std::byte> payload) try {
  CacheEntryHeader header;
  if (payload.size() < sizeof header) return {};
  std::memcpy(&header, payload.data(), sizeof header);
  payload = payload.subspan(sizeof header);
  if (std::max({header.guarded, header.chooses_local_size, header.local_size_must_divide}) > 1) return {};
  if (header.string_bytes > payload.size() || (payload.size() - header.string_bytes) % sizeof(uint32_t) != 0) return {};
  CompiledShader shader;
  shader.guarded = header.guarded != 0, shader.chooses_local_size = header.chooses_local_size != 0,
  shader.local_size_must_divide = header.local_size_must_divide != 0;
  StringReader reader({reinterpret_cast<const char*>(payload.data()), header.string_bytes});
  shader.missing_local_size_error = reader.read_string();
  for (uint32_t i = 0; i < header.warnings; ++i) shader.warnings.push_back(reader.read_string());
  for (uint32_t i = 0; i < header.formats; ++i) {
    auto& format = shader.debug.formats.emplace_back();
    format.file = reader.read_string(), format.line = reader.read_number(), format.text = reader.read_string();
  }
  for (uint32_t i = 0; i < header.accesses; ++i) {
    auto& access = shader.debug.accesses.emplace_back();
    access.file = reader.read_string(), access.line = reader.read_number(), access.buffer = reader.read_string();
    const std::string kind = reader.read_string();
    access.signed_index = kind.starts_with('s'), access.writes = kind.ends_with('w');
  }
  payload = payload.subspan(header.string_bytes);
  if (!reader.is_at_end() || payload.empty()) return {};
  shader.spirv.resize(payload.size() / sizeof(uint32_t));
  std::memcpy(shader.spirv.data(), payload.data(), payload.size());
  return shader;
} catch (const Error&) {  // the header declares more strings than there are
  return {};
}

std::optional<CompiledShader> read_cached_shader(const std::string& key) {
  const auto payload = get_cache_directory() ? read_cache_entry(kKind, get_cache_entry_name(key)) : std::nullopt;
  return payload ? parse_shader(*payload) : std::nullopt;
}

void write_cached_shader(const std::string& key, const CompiledShader& shader) {
  if (get_cache_directory()) write_cache_entry(kKind, get_cache_entry_name(key), serialize_shader(shader));
}

}  // namespace pumice
