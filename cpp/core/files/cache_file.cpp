#include "core/files/cache_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/log.h"

namespace pumice {
namespace {

namespace fs = std::filesystem;

// The head of every entry; the payload follows it.
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

constexpr uint64_t kDefaultLimit = uint64_t{1} << 30;
constexpr uint32_t kWritesBetweenPrunes = 64;
constexpr auto kUseGrain = std::chrono::hours(1);

uint64_t size_limit() {
  const char* text = environment("PUMICE_CACHE_MB");
  uint64_t megabytes = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), megabytes).ec != std::errc() || megabytes > UINT32_MAX) return kDefaultLimit;
  return megabytes << 20;
}

struct CachedFile {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

std::vector<CachedFile> cached_files(const fs::path& folder) {
  std::vector<CachedFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || gone) continue;
    CachedFile file{at->path(), at->file_size(gone), at->last_write_time(gone)};
    if (!gone) files.push_back(std::move(file));
  }
  return files;
}

// Whether a write failed because there is no room, or because the disk fails: both concern every later process.
bool is_full(int failure) {
  return failure == ENOSPC || failure == EDQUOT || failure == EFBIG || failure == EIO;
}

// Says once in a process that nothing is kept; what was to be kept is made again when it is needed.
void warn_of_full_disk(const fs::path& path, int failure) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  log(LogLevel::warning,
      "the cache keeps nothing more: " + path.string() + " cannot be written (" + std::generic_category().message(failure) +
          "). Results are not affected; what is compiled now is compiled again in the next process. PUMICE_CACHE_DIR names "
          "another folder, PUMICE_NO_CACHE=1 does without.");
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
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const uint64_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  Header header;
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (error || !file || size < sizeof header || header.bytes != size - sizeof header) return {};
  std::vector<std::byte> payload(header.bytes);
  file.read(reinterpret_cast<char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
  if (!file) return {};
  const Header expected = header_of(kind, payload);
  if (std::memcmp(&header, &expected, sizeof header) != 0) return {};
  note_use(path);
  return payload;
}

bool write_cache_file(const fs::path& path, std::string_view kind, std::span<const std::byte> payload) noexcept {
  try {
    fs::create_directories(path.parent_path());
    const fs::path temporary = temporary_name(path);
    const Header header = header_of(kind, payload);
    errno = 0;
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(reinterpret_cast<const char*>(payload.data()), static_cast<std::streamsize>(payload.size()));
    file.close();
    int failure = file ? 0 : errno;
    std::error_code error;
    if (file) fs::rename(temporary, path, error);
    if (file && !error) {
      static std::atomic<uint32_t> writes{0};
      if (writes.fetch_add(1) % kWritesBetweenPrunes == 0) prune_cache();
      return true;
    }
    if (file) failure = error.value();
    fs::remove(temporary, error);
    if (is_full(failure)) warn_of_full_disk(path, failure);
  } catch (const fs::filesystem_error& error) {  // no folder can be made
    if (is_full(error.code().value())) warn_of_full_disk(path, error.code().value());
  } catch (...) {  // no memory for names: go on without
  }
  return false;
}

void note_use(const fs::path& path) noexcept {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  if (const auto used = fs::last_write_time(path, error); !error && now - used > kUseGrain) fs::last_write_time(path, now, error);
}

std::optional<CacheState> cache_state() {
  const auto folder = cache_directory();
  if (!folder) return {};
  CacheState state{*folder, 0, 0, size_limit()};
  for (const CachedFile& file : cached_files(*folder)) ++state.files, state.bytes += file.bytes;
  return state;
}

void prune_cache() noexcept {
  try {
    const auto folder = cache_directory();
    if (!folder) return;
    auto files = cached_files(*folder);
    std::error_code error;
    uint64_t total = 0;
    std::sort(files.begin(), files.end(), [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
    const auto now = fs::file_time_type::clock::now();
    std::erase_if(files, [&](const CachedFile& file) {
      const bool abandoned = file.path.extension() == ".tmp" && now - file.used > kUseGrain;
      if (abandoned) fs::remove(file.path, error);
      total += abandoned ? 0 : file.bytes;
      return abandoned;
    });
    const uint64_t limit = size_limit();
    if (total <= limit) return;
    for (const CachedFile& file : files) {
      if (total <= limit / 4 * 3) break;
      fs::remove(file.path, error);
      total -= file.bytes;
    }
  } catch (...) {  // as with writes: the cache is a convenience
  }
}

}  // namespace pumice
