#include "core/files/cache_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "core/error.h"
#include "core/files/hash.h"
#include "core/log.h"

namespace pumice {
namespace {

constexpr std::array<char, 8> kMagic = {'p', 'u', 'm', 'i', 'c', 'e', '0', '2'};
constexpr uint64_t kMaxEntryBytes = uint64_t{1} << 30;  // maximum size of an entry
constexpr uint32_t kWritesBetweenPrunes = 64;
constexpr auto kUseInterval = std::chrono::hours(1);

// Subfolder and file name of a cache entry.
struct EntryLocation {
  std::string folder, file;
};

EntryLocation locate_entry(std::string_view kind_name, const std::string& name) {
  const CacheEntryKind& kind = find_entry_kind(kind_name);
  const size_t slash = name.find('/');
  const bool has_folder = slash != std::string::npos;
  const std::string folder = has_folder ? name.substr(0, slash) : std::string();
  const std::string stem = has_folder ? name.substr(slash + 1) : name;
  if (kind.is_nested != has_folder || (has_folder && !is_valid_entry_name(folder)) || !is_valid_entry_name(stem))
    throw Error("'" + name + "': expected the name of a cache entry of the kind '" + std::string(kind_name) + "', " +
                (kind.is_nested ? "FOLDER/STEM" : "STEM") + " of hexadecimal digits and '-'");
  return {std::string(kind.name) + (kind.is_nested ? "/" + folder : ""), stem + std::string(kind.suffix)};
}

// Fills `bytes` from the file. Returns 0, or an errno if the file is too short or cannot be read.
int read_all(int file, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENODATA;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

int write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

// Updates the entry's timestamp for the LRU order of prune_cache(), at most about once an hour.
void touch_entry(const OpenedFile& entry) {
  const auto used = std::chrono::system_clock::from_time_t(entry.status.st_mtim.tv_sec);
  if (std::chrono::system_clock::now() - used > kUseInterval) ::futimens(entry.file.get(), nullptr);
}

// Whether a write failed because the disk is full or faulty, so that later writes will fail as well.
bool is_disk_full(int failure) {
  return failure == ENOSPC || failure == EDQUOT || failure == EFBIG || failure == EIO;
}

// Warns once per process. Entries that cannot be stored are recomputed when needed.
void warn_of_full_disk(const std::string& path, int failure) {
  static std::atomic<bool> has_warned{false};
  if (has_warned.exchange(true)) return;
  log(LogLevel::warning, "the cache does not store anything more: " + path + " cannot be written (" +
                             std::generic_category().message(failure) +
                             "). Results are not affected, but the next process compiles its kernels again. Free some space, set "
                             "PUMICE_CACHE_DIR to a folder on another disk, or turn the cache off with PUMICE_NO_CACHE=1.");
}

// Returns a random name, so that nobody can create the file in advance. prune_cache() recognizes the pattern.
std::string make_temporary_name(const std::string& file) {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) throw Error("getrandom() returned no random numbers");
  std::array<char, 17> hex_digits;
  std::snprintf(hex_digits.data(), hex_digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return file + "." + hex_digits.data() + ".tmp";
}

// Replaces a file atomically: writes a temporary file and renames it. Returns 0 or an errno.
int replace_file(const FileDescriptor& folder, const std::string& name, const CacheHeader& header, std::span<const std::byte> payload) {
  const std::string temporary = make_temporary_name(name);
  FileDescriptor file(::openat(folder.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return file.error();
  int failure = write_all(file.get(), std::as_bytes(std::span(&header, 1)));
  if (!failure) failure = write_all(file.get(), payload);
  const int failure_of_close = file.close();
  if (!failure) failure = failure_of_close;
  if (!failure && ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) failure = errno;
  if (failure) ::unlinkat(folder.get(), temporary.c_str(), 0);
  return failure;
}

}  // namespace

CacheHeader make_cache_header(std::string_view kind, std::string_view name, std::span<const std::byte> payload) {
  return {kMagic, payload.size(), Sha256().add_field(kind).add_field(name).add_bytes(payload).digest()};
}

bool matches_cache_header(const CacheHeader& header, std::string_view kind, std::string_view name, std::span<const std::byte> payload) {
  if (header.magic != kMagic || header.bytes != payload.size()) return false;
  return header.sha256 == make_cache_header(kind, name, payload).sha256;
}

std::optional<std::vector<std::byte>> read_cache_entry(std::string_view kind, const std::string& name) {
  const EntryLocation location = locate_entry(kind, name);
  const FileDescriptor folder = open_cache_folder(open_cache(false), location.folder, false);
  const auto path = get_cache_directory();
  if (!folder || !path) return {};
  const OpenedFile entry = open_trusted(folder.get(), location.file, O_RDONLY, *path / location.folder / location.file);
  if (!entry.file || !S_ISREG(entry.status.st_mode)) return {};
  CacheHeader header;
  const uint64_t size = static_cast<uint64_t>(entry.status.st_size);
  if (size < sizeof header || size > kMaxEntryBytes) return {};
  if (read_all(entry.file.get(), std::as_writable_bytes(std::span(&header, 1))) != 0) return {};
  if (header.magic != kMagic || header.bytes != size - sizeof header) return {};
  std::vector<std::byte> payload(header.bytes);
  if (read_all(entry.file.get(), payload) != 0 || !matches_cache_header(header, kind, name, payload)) return {};
  touch_entry(entry);
  return payload;
}

bool write_cache_entry(std::string_view kind, const std::string& name, std::span<const std::byte> payload) {
  const EntryLocation location = locate_entry(kind, name);
  if (payload.size() > kMaxEntryBytes - sizeof(CacheHeader)) return false;
  const FileDescriptor folder = open_cache_folder(open_cache(true), location.folder, true);
  const auto path = get_cache_directory();
  const int failure = folder ? replace_file(folder, location.file, make_cache_header(kind, name, payload), payload) : folder.error();
  if (is_disk_full(failure) && path) warn_of_full_disk((*path / location.folder / location.file).string(), failure);
  if (failure) return false;
  static std::atomic<uint32_t> writes{0};
  if (writes.fetch_add(1) % kWritesBetweenPrunes == 0) prune_cache();
  return true;
}

}  // namespace pumice
