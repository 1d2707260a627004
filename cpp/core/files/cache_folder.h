// Opens folders and files of the on-disk cache. Rejects symbolic links and anything that another user owns or can write.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

// Returns the folder `pumice` in PUMICE_CACHE_DIR, else in XDG_CACHE_HOME, else in ~/.cache. Returns nullopt if PUMICE_NO_CACHE is set (and
// not "0") or there is no home.
std::optional<std::filesystem::path> get_cache_directory();

// Owns a file descriptor, or stores the errno of the call that failed to open it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int result);  // `result` of open() or similar; reads errno if it failed
  static FileDescriptor from_errno(int error);
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.value_) { other.value_ = kClosed; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  explicit operator bool() const { return value_ >= 0; }
  int get() const { return value_; }
  int error() const { return value_ < 0 ? -value_ : 0; }
  int close();  // returns 0 or errno: some file systems report a failed write only here

 private:
  static constexpr int kClosed = -1 << 20;

  int value_;
};

// The cache files of a kind are named KIND/NAME + suffix. If the kind is nested, NAME is FOLDER/STEM.
struct CacheEntryKind {
  std::string_view name;
  std::string_view suffix;
  bool is_nested;
};
std::span<const CacheEntryKind> list_entry_kinds();
const CacheEntryKind& find_entry_kind(std::string_view name);  // throws Error if the name is unknown

// Whether `text` is a valid folder name or file stem of the cache: lower-case hexadecimal digits and '-'.
bool is_valid_entry_name(std::string_view text);

// An open file or folder with its fstat() result.
struct OpenedFile {
  FileDescriptor file;
  struct stat status = {};
};

// Opens `name` in the folder `parent`. Fails and warns once per process if it is a link, belongs to another user, or is writable by others.
// path: shown in the warning.
OpenedFile open_trusted(int parent, const std::string& name, int flags, const std::filesystem::path& path);

// Opens the cache folder. `create`: creates it with mode 0700 if it is missing.
FileDescriptor open_cache(bool create);

// Opens a folder inside the cache. folder: path relative to get_cache_directory(), e.g. "spirv/ab".
FileDescriptor open_cache_folder(const FileDescriptor& cache, const std::string& folder, bool create);

// Returns the names in a folder, without "." and "..".
std::vector<std::string> list_folder(const FileDescriptor& folder);

}  // namespace pumice
