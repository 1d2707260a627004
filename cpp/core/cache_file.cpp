#include "core/cache_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace pumice {
namespace {

namespace fs = std::filesystem;

// At the head of every entry; the payload follows.
struct Header {
  char magic[8] = {'p', 'u', 'm', 'i', 'c', 'e', '0', '1'};
  char kind[8] = {};
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // FNV-1a, 64 bits, of the payload
};

uint64_t checksum_of(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

Header header_of(std::string_view kind, std::span<const std::byte> payload) {
  Header header;
  std::memcpy(header.kind, kind.data(), std::min(kind.size(), sizeof header.kind));
  header.bytes = payload.size();
  header.checksum = checksum_of(payload);
  return header;
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

fs::path temporary_name(const fs::path& path) {
  static std::atomic<uint32_t> counter{0};
  return path.string() + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
}

}  // namespace

std::optional<fs::path> cache_directory() {
  const char* off = environment("PUMICE_NO_CACHE");
  if (off && std::strcmp(off, "0") != 0) return {};
  if (const char* chosen = environment("PUMICE_CACHE_DIR")) return fs::path(chosen);
  if (const char* xdg = environment("XDG_CACHE_HOME")) return fs::path(xdg) / "pumice";
  if (const char* home = environment("HOME")) return fs::path(home) / ".cache" / "pumice";
  return {};
}

std::optional<std::vector<std::byte>> read_cache_file(const fs::path& path, std::string_view kind) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  if (size < static_cast<std::streamoff>(sizeof(Header))) return {};
  Header header;
  std::vector<std::byte> payload(static_cast<size_t>(size) - sizeof header);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.read(reinterpret_cast<char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
  if (!file) return {};
  const Header expected = header_of(kind, payload);
  if (std::memcmp(&header, &expected, sizeof header) != 0) return {};
  return payload;
}

bool write_cache_file(const fs::path& path, std::string_view kind, std::span<const std::byte> payload) noexcept {
  try {
    fs::create_directories(path.parent_path());
    const fs::path temporary = temporary_name(path);
    const Header header = header_of(kind, payload);
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(reinterpret_cast<const char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
    file.close();
    std::error_code error;
    if (file) fs::rename(temporary, path, error);
    if (file && !error) return true;
    fs::remove(temporary, error);
  } catch (...) {  // no space, no rights: go on without
  }
  return false;
}

}  // namespace pumice
