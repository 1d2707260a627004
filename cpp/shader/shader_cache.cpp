#include "shader/shader_cache.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/files/cache_file.h"
#include "core/files/hash.h"
#include "shader/debug/thread_guard.h"
#include "shader/source/glslang_loader.h"

namespace pumice {
namespace {

// Format version of entries. Increase it to invalidate the entries of earlier builds.
constexpr uint64_t kFormat = 8;
constexpr std::string_view kKind = "spirv";
constexpr size_t kMaxEntries = 2048;

// The fixed-size head of an entry; NUL-terminated strings and the SPIR-V follow.
struct EntryHead {
  uint32_t guarded = 0, is_chosen = 0, must_divide = 0;
  uint32_t warnings = 0, formats = 0, accesses = 0;
  uint32_t text_bytes = 0;
};

std::string entry_name(const std::string& key) {
  return key.substr(0, 2) + "/" + key.substr(2);
}

void append_bytes(std::vector<std::byte>& payload, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  payload.insert(payload.end(), begin, begin + bytes);
}

// Reads the strings of an entry in order; throws Error if there are no more.
class TextReader {
 public:
  explicit TextReader(std::string_view texts) : texts_(texts) {}

  std::string text() {
    const size_t end = texts_.find('\0');
    if (end == std::string_view::npos) throw Error("a cached shader lacks a text");
    const std::string found(texts_.substr(0, end));
    texts_.remove_prefix(end + 1);
    return found;
  }

  uint32_t number() {
    const std::string digits = text();
    uint32_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }

  bool is_at_end() const { return texts_.empty(); }

 private:
  std::string_view texts_;
};

}  // namespace

std::string shader_key(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                       const std::optional<LocalSize>& local_size) {
  Sha256 hash;
  hash.field(kFormat)
      .field(glslang_version())
      .field(static_cast<uint64_t>(options.vulkan_minor))
      .field(static_cast<uint64_t>(options.debug))
      .field(static_cast<uint64_t>(options.guard))
      .field(static_cast<uint64_t>(options.guard_declared))
      .field(local_size ? declaration(*local_size) : std::string())
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

std::vector<std::byte> serialize_shader(const CompiledShader& shader) {
  std::string texts;
  const auto add = [&](const std::string& text) { texts += text + '\0'; };
  add(shader.lacks_local_size);
  for (const auto& warning : shader.warnings) add(warning);
  for (const auto& format : shader.debug.formats) add(format.file), add(std::to_string(format.line)), add(format.text);
  for (const auto& access : shader.debug.accesses) {
    add(access.file), add(std::to_string(access.line)), add(access.buffer);
    add(std::string(access.signed_index ? "s" : "u") + (access.writes ? "w" : "r"));
  }
  EntryHead head{shader.guarded,
                 shader.is_chosen,
                 shader.must_divide,
                 static_cast<uint32_t>(shader.warnings.size()),
                 static_cast<uint32_t>(shader.debug.formats.size()),
                 static_cast<uint32_t>(shader.debug.accesses.size()),
                 static_cast<uint32_t>(texts.size())};
  std::vector<std::byte> payload;
  append_bytes(payload, &head, sizeof head);
  append_bytes(payload, texts.data(), texts.size());
  append_bytes(payload, shader.spirv.data(), shader.spirv.size() * sizeof(uint32_t));
  return payload;
}

std::optional<CompiledShader> parse_shader(std::span<const std::byte> payload) try {
  EntryHead head;
  if (payload.size() < sizeof head) return {};
  std::memcpy(&head, payload.data(), sizeof head);
  payload = payload.subspan(sizeof head);
  if (std::max({head.guarded, head.is_chosen, head.must_divide}) > 1) return {};
  if (head.text_bytes > payload.size() || (payload.size() - head.text_bytes) % sizeof(uint32_t) != 0) return {};
  CompiledShader shader;
  shader.guarded = head.guarded != 0, shader.is_chosen = head.is_chosen != 0, shader.must_divide = head.must_divide != 0;
  TextReader reader({reinterpret_cast<const char*>(payload.data()), head.text_bytes});
  shader.lacks_local_size = reader.text();
  for (uint32_t i = 0; i < head.warnings; ++i) shader.warnings.push_back(reader.text());
  for (uint32_t i = 0; i < head.formats; ++i) {
    auto& format = shader.debug.formats.emplace_back();
    format.file = reader.text(), format.line = reader.number(), format.text = reader.text();
  }
  for (uint32_t i = 0; i < head.accesses; ++i) {
    auto& access = shader.debug.accesses.emplace_back();
    access.file = reader.text(), access.line = reader.number(), access.buffer = reader.text();
    const std::string kind = reader.text();
    access.signed_index = kind.starts_with('s'), access.writes = kind.ends_with('w');
  }
  payload = payload.subspan(head.text_bytes);
  if (!reader.is_at_end() || payload.empty()) return {};
  shader.spirv.resize(payload.size() / sizeof(uint32_t));
  std::memcpy(shader.spirv.data(), payload.data(), payload.size());
  return shader;
} catch (const Error&) {  // fewer strings than declared
  return {};
}

std::optional<CompiledShader> read_cached_shader(const std::string& key) {
  const auto payload = cache_directory() ? read_cache_entry(kKind, entry_name(key)) : std::nullopt;
  return payload ? parse_shader(*payload) : std::nullopt;
}

void write_cached_shader(const std::string& key, const CompiledShader& shader) {
  if (cache_directory()) write_cache_entry(kKind, entry_name(key), serialize_shader(shader));
}

}  // namespace pumice
