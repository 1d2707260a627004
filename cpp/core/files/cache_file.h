// Entries of the on-disk cache: files with a SHA-256 that are replaced atomically, safe under concurrent writers and killed processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/cache_folder.h"

namespace pumice {

// The beginning of every entry; the payload follows it.
struct CacheHeader {
  std::array<char, 8> magic = {};
  uint64_t bytes = 0;                   // of the payload
  std::array<uint8_t, 32> sha256 = {};  // of kind, name and payload, so that no entry passes for another one
};
constexpr std::string_view kCacheMagic = "pumice";  // two digits follow: the version of the header

CacheHeader cache_header(std::string_view kind, std::string_view name, std::span<const std::byte> payload);
bool is_cache_entry(const CacheHeader& header, std::string_view kind, std::string_view name, std::span<const std::byte> payload);

// The payload of an entry. None if the file is missing, truncated, corrupt, of another kind or name, owned by another user, or writable by
// others. kind, name: see EntryKind. Throws Error for a kind or name that the cache cannot have.
std::optional<std::vector<std::byte>> read_cache_entry(std::string_view kind, const std::string& name);

// Replaces an entry atomically. False if it could not be written: the cache is a convenience. Throws Error as read_cache_entry() does.
bool write_cache_entry(std::string_view kind, const std::string& name, std::span<const std::byte> payload);

// The names of the entries of a kind, sorted; folder: only those in this folder of a nested kind.
std::vector<std::string> cache_entries(std::string_view kind, const std::string& folder = {});

// The entries in the folder, also those of other versions. Other files are not counted, and never removed.
struct CacheState {
  std::filesystem::path folder;
  uint64_t files = 0;
  uint64_t bytes = 0;  // allocated on the disk
  uint64_t limit = 0;  // the size that prune_cache() allows: PUMICE_CACHE_MB (2^20 bytes each), else 1 GiB
};
std::optional<CacheState> cache_state();

// If the entries exceed the limit, removes the least recently used ones down to three quarters of it. Also removes temporary files of
// killed writers after an hour. Runs at the first write of a process and every 64 writes. Other processes may use the cache meanwhile.
void prune_cache() noexcept;

}  // namespace pumice
