// On-disk cache entries with a SHA-256. Writes replace files atomically, so concurrent writers and killed processes are safe.
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

// Header of every entry, followed by the payload.
struct CacheHeader {
  std::array<char, 8> magic = {};
  uint64_t bytes = 0;                   // payload size
  std::array<uint8_t, 32> sha256 = {};  // hash of kind, name and payload, so that a renamed entry is rejected
};
constexpr std::string_view kCacheMagic = "pumice";  // followed by the header version as two digits

CacheHeader make_cache_header(std::string_view kind, std::string_view name, std::span<const std::byte> payload);
bool matches_cache_header(const CacheHeader& header, std::string_view kind, std::string_view name, std::span<const std::byte> payload);

// Returns the payload of an entry, or nullopt if the file is missing, truncated, corrupt, of another kind or name, owned by another user,
// or writable by others. kind, name: see CacheEntryKind. Throws Error if the kind or name is invalid.
std::optional<std::vector<std::byte>> read_cache_entry(std::string_view kind, const std::string& name);

// Replaces an entry atomically. Returns false on failure instead of throwing, because the cache is optional. Throws Error like
// read_cache_entry().
bool write_cache_entry(std::string_view kind, const std::string& name, std::span<const std::byte> payload);

// Returns the sorted entry names of a kind. `folder`: restricts a nested kind to the entries in this folder.
std::vector<std::string> list_cache_entries(std::string_view kind, const std::string& folder = {});

// Entries in the cache folder, including other versions' entries. Other files are neither counted nor removed.
struct CacheUsage {
  std::filesystem::path folder;
  uint64_t files = 0;
  uint64_t bytes = 0;  // bytes allocated on disk
  uint64_t limit = 0;  // maximum size for prune_cache(): PUMICE_CACHE_MB (MiB), default 1 GiB
};
std::optional<CacheUsage> get_cache_usage();

// If the entries exceed the limit, removes the least recently used ones until they use 3/4 of the limit. Also removes temporary files of
// killed writers after an hour. Runs at the first write of a process and every 64 writes. Safe while other processes use the cache.
void prune_cache() noexcept;

}  // namespace pumice
