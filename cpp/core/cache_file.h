// Files of the on-disk cache: checksummed, written by atomic rename, safe under concurrent writers and killed processes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pumice {

// PUMICE_CACHE_DIR, else $XDG_CACHE_HOME/pumice, else ~/.cache/pumice; none where PUMICE_NO_CACHE is set (and not "0") or there is no home.
std::optional<std::filesystem::path> cache_directory();

// The payload of an entry of this kind; none where the file is missing, truncated, corrupt or of another kind.
std::optional<std::vector<std::byte>> read_cache_file(const std::filesystem::path& path, std::string_view kind);

// Makes the folder where needed; false where the file could not be written. Never throws: a cache is a convenience.
bool write_cache_file(const std::filesystem::path& path, std::string_view kind, std::span<const std::byte> payload) noexcept;

}  // namespace pumice
