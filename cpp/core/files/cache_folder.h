// Opens folders and files of the on-disk cache: never through a symbolic link, and none that another user owns or may change.
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

// The folder `pumice` in PUMICE_CACHE_DIR, else in XDG_CACHE_HOME, else in ~/.cache; none if PUMICE_NO_CACHE is set (and not "0") or there
// is no home.
std::optional<std::filesystem::path> cache_directory();

// A descriptor that closes itself, or the errno of the call that should have opened it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int result);  // of open() and the like: reads errno if that failed
  static FileDescriptor failure(int error);
  FileDescriptor(FileDescriptor&& other) noexcept : value_(other.value_) { other.value_ = kClosed; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  explicit operator bool() const { return value_ >= 0; }
  int get() const { return value_; }
  int error() const { return value_ < 0 ? -value_ : 0; }
  int close();  // 0 or errno: some file systems report a failed write only here

 private:
  static constexpr int kClosed = -1 << 20;

  int value_;
};

// The entries of one kind are the files KIND/NAME + suffix of the cache. If they are nested, NAME is FOLDER/STEM.
struct EntryKind {
  std::string_view name;
  std::string_view suffix;
  bool is_nested;
};
std::span<const EntryKind> entry_kinds();
const EntryKind& entry_kind(std::string_view name);  // throws Error

// Whether `text` can be a folder or the stem of a file of the cache: lower-case hexadecimal digits and '-'.
bool is_entry_stem(std::string_view text);

// An opened file or folder, and what fstat() reports of it.
struct Opened {
  FileDescriptor file;
  struct stat status = {};
};

// Opens `name` in the folder `parent`. Fails with a warning, one in a process, if it is a link, belongs to another user, or others may
// write it. path: shown in that warning.
Opened open_trusted(int parent, const std::string& name, int flags, const std::filesystem::path& path);

// The cache's own folder, which `create` makes with mode 0700.
FileDescriptor open_cache(bool create);

// A folder of the cache by its path below cache_directory(), as "spirv/ab".
FileDescriptor open_cache_folder(const FileDescriptor& cache, const std::string& folder, bool create);

// The names in a folder, without "." and "..".
std::vector<std::string> names_in(const FileDescriptor& folder);

}  // namespace pumice
