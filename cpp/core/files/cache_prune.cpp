// Computes the size of the on-disk cache and removes entries.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/files/cache_file.h"
#include "core/files/cache_folder.h"

namespace pumice {
namespace {

constexpr uint64_t kDefaultLimit = uint64_t{1} << 30;
constexpr time_t kAbandonedSeconds = 3600;
constexpr size_t kMagicBytes = sizeof(CacheHeader::magic);

uint64_t read_size_limit() {
  const char* text = std::getenv("PUMICE_CACHE_MB");
  uint64_t megabytes = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), megabytes).ec != std::errc() || megabytes > UINT32_MAX) return kDefaultLimit;
  return megabytes << 20;
}

// A file whose name, type and owner match an entry or a temporary file. Its content has not been checked.
struct PruneCandidate {
  const CacheEntryKind* kind;
  std::string folder;  // path relative to the cache folder, e.g. "spirv/ab"
  std::string file;
  uint64_t bytes;  // allocated size, which is smaller than the file size for a sparse file
  timespec used;
  bool is_temporary;
};

bool is_entry_file(const CacheEntryKind& kind, std::string_view file) {
  return file.ends_with(kind.suffix) && is_valid_entry_name(file.substr(0, file.size() - kind.suffix.size()));
}

// Whether the file name has the form ENTRY.<16 hexadecimal digits>.tmp.
bool is_temporary_file(const CacheEntryKind& kind, std::string_view file) {
  constexpr size_t kSuffixBytes = sizeof(".0123456789abcdef.tmp") - 1;
  if (file.size() <= kSuffixBytes || !file.ends_with(".tmp") || file[file.size() - kSuffixBytes] != '.') return false;
  return is_valid_entry_name(file.substr(file.size() - kSuffixBytes + 1, 16)) &&
         is_entry_file(kind, file.substr(0, file.size() - kSuffixBytes));
}

void add_candidates(std::vector<PruneCandidate>& candidates, const CacheEntryKind& kind, const FileDescriptor& folder,
                    const std::string& path) {
  for (const std::string& name : list_folder(folder)) {
    const bool is_temporary = is_temporary_file(kind, name);
    if (!is_temporary && !is_entry_file(kind, name)) continue;
    struct stat status;
    if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) continue;
    candidates.push_back({&kind, path, name, static_cast<uint64_t>(status.st_blocks) * 512, status.st_mtim, is_temporary});
  }
}

std::vector<PruneCandidate> list_candidates(const FileDescriptor& cache, const CacheEntryKind& kind) {
  std::vector<PruneCandidate> candidates;
  const std::string path(kind.name);
  const FileDescriptor folder = open_cache_folder(cache, path, false);
  if (!folder) return candidates;
  if (!kind.is_nested) add_candidates(candidates, kind, folder, path);
  if (kind.is_nested) {
    for (const std::string& name : list_folder(folder)) {
      if (!is_valid_entry_name(name)) continue;
      const std::string inner = path + "/" + name;
      if (const FileDescriptor opened = open_cache_folder(cache, inner, false)) add_candidates(candidates, kind, opened, inner);
    }
  }
  return candidates;
}

// Whether the cache wrote this file. Entries of any version start with the magic number; a killed writer may leave a temporary file with
// only part of that number.
bool was_written_by_cache(const FileDescriptor& folder, const PruneCandidate& candidate) {
  const FileDescriptor file(::openat(folder.get(), candidate.file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) return false;
  std::array<char, kMagicBytes> begin = {};
  const ssize_t count = ::pread(file.get(), begin.data(), begin.size(), 0);
  if (count < 0 || (!candidate.is_temporary && count < ssize_t{kMagicBytes})) return false;
  const std::string_view text(begin.data(), static_cast<size_t>(count));
  const std::string_view version_digits = text.substr(std::min(text.size(), kCacheMagic.size()));
  return kCacheMagic.starts_with(text.substr(0, kCacheMagic.size())) &&
         version_digits.find_first_not_of("0123456789") == version_digits.npos;
}

// Calls `visit` with the open folder and each entry that the cache wrote.
void for_each_cache_file(const FileDescriptor& cache, const std::vector<PruneCandidate>& candidates,
                         const std::function<void(const FileDescriptor&, const PruneCandidate&)>& visit) {
  FileDescriptor folder = FileDescriptor::from_errno(ENOENT);
  std::string opened;
  for (const PruneCandidate& candidate : candidates) {
    if (candidate.folder != opened) folder = open_cache_folder(cache, opened = candidate.folder, false);
    if (folder && was_written_by_cache(folder, candidate)) visit(folder, candidate);
  }
}

std::vector<PruneCandidate> list_all_candidates(const FileDescriptor& cache) {
  std::vector<PruneCandidate> all;
  for (const CacheEntryKind& kind : list_entry_kinds()) {
    auto candidates = list_candidates(cache, kind);
    std::move(candidates.begin(), candidates.end(), std::back_inserter(all));
  }
  return all;
}

void remove_abandoned_temporaries(const FileDescriptor& cache, std::vector<PruneCandidate>& candidates) {
  std::vector<PruneCandidate> temporaries;
  const auto entries_end =
      std::stable_partition(candidates.begin(), candidates.end(), [](const auto& candidate) { return !candidate.is_temporary; });
  std::move(entries_end, candidates.end(), std::back_inserter(temporaries));
  candidates.erase(entries_end, candidates.end());
  const time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::erase_if(temporaries, [&](const PruneCandidate& candidate) { return now - candidate.used.tv_sec <= kAbandonedSeconds; });
  for_each_cache_file(cache, temporaries, [](const FileDescriptor& folder, const PruneCandidate& candidate) {
    ::unlinkat(folder.get(), candidate.file.c_str(), 0);
  });
}

uint64_t sum_bytes(const std::vector<PruneCandidate>& candidates) {
  uint64_t total = 0;
  for (const PruneCandidate& candidate : candidates) total += candidate.bytes;
  return total;
}

}  // namespace

std::vector<std::string> list_cache_entries(std::string_view kind_name, const std::string& folder) {
  const CacheEntryKind& kind = find_entry_kind(kind_name);
  const std::string entry_path = std::string(kind.name) + (folder.empty() ? "" : "/" + folder);
  std::vector<std::string> names;
  const FileDescriptor cache = open_cache(false);
  if (!cache) return names;
  std::vector<PruneCandidate> candidates;
  if (folder.empty()) {
    candidates = list_candidates(cache, kind);
  } else if (const FileDescriptor opened = open_cache_folder(cache, entry_path, false)) {
    add_candidates(candidates, kind, opened, entry_path);
  }
  for (const PruneCandidate& candidate : candidates) {
    if (candidate.is_temporary) continue;
    const std::string stem = candidate.file.substr(0, candidate.file.size() - kind.suffix.size());
    names.push_back(kind.is_nested ? candidate.folder.substr(kind.name.size() + 1) + "/" + stem : stem);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<CacheUsage> get_cache_usage() {
  const auto path = get_cache_directory();
  if (!path) return {};
  CacheUsage state{*path, 0, 0, read_size_limit()};
  const FileDescriptor cache = open_cache(false);
  if (!cache) return state;
  for_each_cache_file(cache, list_all_candidates(cache), [&](const FileDescriptor&, const PruneCandidate& candidate) {
    if (!candidate.is_temporary) ++state.files, state.bytes += candidate.bytes;
  });
  return state;
}

void prune_cache() noexcept {
  try {
    const FileDescriptor cache = open_cache(false);
    if (!cache) return;
    std::vector<PruneCandidate> candidates = list_all_candidates(cache);
    remove_abandoned_temporaries(cache, candidates);
    const uint64_t limit = read_size_limit();
    if (sum_bytes(candidates) <= limit) return;  // an upper bound from names and owners, so that no file has to be read
    std::vector<PruneCandidate> entries;
    for_each_cache_file(cache, candidates, [&](const FileDescriptor&, const PruneCandidate& candidate) { entries.push_back(candidate); });
    uint64_t total = sum_bytes(entries);
    if (total <= limit) return;
    std::sort(entries.begin(), entries.end(), [](const PruneCandidate& a, const PruneCandidate& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const PruneCandidate& candidate : entries) {
      if (total <= limit / 4 * 3) break;
      // Check again: the file may have been replaced in the meantime.
      for_each_cache_file(cache, {candidate},
                          [](const FileDescriptor& folder, const PruneCandidate& file) { ::unlinkat(folder.get(), file.file.c_str(), 0); });
      total -= candidate.bytes;
    }
  } catch (...) {  // out of memory: the next write tries again
  }
}

}  // namespace pumice
