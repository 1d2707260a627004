// Files of the on-disk cache: checksummed, written by atomic rename, safe under concurrent writers and killed processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pumice {

// The cache's folder: PUMICE_CACHE_DIR, else $XDG_CACHE_HOME/pumice, else ~/.cache/pumice; none where PUMICE_NO_CACHE is set (and not "0")
// or there is no home.
std::optional<std::filesystem::path> cache_directory();

// The payload of an entry of this kind; none where the file is missing, truncated, corrupt or of another kind.
std::optional<std::vector<std::byte>> read_cache_file(const std::filesystem::path& path, std::string_view kind);

// Writes an entry, and makes the folder where needed. False where the file could not be written. Never throws: a cache is a convenience.
bool write_cache_file(const std::filesystem::path& path, std::string_view kind, std::span<const std::byte> payload) noexcept;

// Marks a file as used now, for prune_cache(); about once an hour at most.
void note_use(const std::filesystem::path& path) noexcept;

// The folder's files, of all kinds of entries and of other versions too.
struct CacheState {
  std::filesystem::path folder;
  uint64_t files = 0, bytes = 0;
  uint64_t limit = 0;  // bytes that prune_cache() lets stay: PUMICE_CACHE_MB (2^20 bytes each), else 1 GiB
};
std::optional<CacheState> cache_state();

// Where the folder is over its limit, removes the entries that were not used for longest until it is at three quarters of the limit. Also
// removes unfinished files of killed writers. Called after every so many writes. Safe beside other processes: an entry that is gone is made
// again.
void prune_cache() noexcept;

}  // namespace pumice
