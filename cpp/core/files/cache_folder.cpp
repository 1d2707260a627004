#include "core/files/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFolderMode = 0700;

const char* get_environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::string describe_owner(uid_t user) {
  std::array<char, 4096> texts;
  passwd entry = {};
  passwd* opened = nullptr;
  const bool has_status = getpwuid_r(user, &entry, texts.data(), texts.size(), &opened) == 0 && opened;
  return (has_status ? "user '" + std::string(entry.pw_name) + "', " : std::string("user ")) + "uid " + std::to_string(user);
}

// Warns once per process instead of once per entry.
void warn_untrusted(const fs::path& path, uid_t owner, const std::string& reason, const std::string& help) {
  static std::atomic<bool> has_warned{false};
  if (has_warned.exchange(true)) return;
  log(LogLevel::warning, "the cache ignores " + path.string() + " (" + describe_owner(owner) + "): " + reason +
                             ". Results are not affected, but kernels may be compiled again in each process. " + help);
}

// Returns why an existing file or folder is not trusted, or an empty string. Root-owned files are not trusted either, because the cache is
// per user.
std::string find_distrust_reason(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return "it is a symbolic link, which the cache does not follow";
  if (status.st_uid != geteuid()) return "it belongs to a different user than this process, which runs as " + describe_owner(geteuid());
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "other users may write to it";
  return {};
}

std::string suggest_fix(const fs::path& path, const struct stat& status) {
  const std::string another = "set PUMICE_CACHE_DIR to a folder that you own.";
  if (status.st_uid != geteuid() || S_ISLNK(status.st_mode)) return "To keep a cache, " + another;
  return std::string(S_ISDIR(status.st_mode) ? "chmod -R" : "chmod") + " go-w " + path.string() +
         " if no other user has written there, or " + another;
}

int create_folders(const fs::path& path) {
  if (::mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT || path.parent_path() == path || path.parent_path().empty()) return errno;
  if (const int error = create_folders(path.parent_path())) return error;
  return ::mkdir(path.c_str(), kFolderMode) == 0 || errno == EEXIST ? 0 : errno;
}

// Whether root would create a cache in another user's home, which happens if sudo keeps HOME: that user could no longer write to it. A
// folder set with PUMICE_CACHE_DIR is still used, because containers run as root on mounted folders.
bool is_home_of_other_user(const fs::path& cache) {
  if (geteuid() != 0 || get_environment_variable("PUMICE_CACHE_DIR")) return false;
  struct stat status;
  for (fs::path at = cache; at.has_relative_path(); at = at.parent_path()) {
    if (::stat(at.c_str(), &status) != 0) continue;
    if (status.st_uid == 0) return false;
    warn_untrusted(at, status.st_uid, "root does not create a cache in a folder of another user", "Use sudo -H, or set PUMICE_CACHE_DIR.");
    return true;
  }
  return false;
}

}  // namespace

std::optional<fs::path> get_cache_directory() {
  const char* off = get_environment_variable("PUMICE_NO_CACHE");
  if (off && std::strcmp(off, "0") != 0) return {};
  if (const char* chosen = get_environment_variable("PUMICE_CACHE_DIR")) return fs::path(chosen) / "pumice";
  if (const char* xdg = get_environment_variable("XDG_CACHE_HOME")) return fs::path(xdg) / "pumice";
  if (const char* home = get_environment_variable("HOME")) return fs::path(home) / ".cache" / "pumice";
  return {};
}

FileDescriptor::FileDescriptor(int result) : value_(result < 0 ? -errno : result) {}

FileDescriptor FileDescriptor::from_errno(int error) {
  errno = error;
  return FileDescriptor(-1);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (value_ >= 0) ::close(value_);
}

int FileDescriptor::close() {
  return ::close(std::exchange(value_, kClosed)) == 0 ? 0 : errno;
}

std::span<const CacheEntryKind> list_entry_kinds() {
  static constexpr CacheEntryKind kinds[] = {
      {"spirv", ".spv", true},     {"pipelines", ".bin", false}, {"trials", ".bin", false},        {"spills", ".bin", true},
      {"graphs", ".graph", false}, {"tuning", ".tuning", true},  {"peaks", ".calibration", false},
  };
  return kinds;
}

const CacheEntryKind& find_entry_kind(std::string_view name) {
  for (const CacheEntryKind& kind : list_entry_kinds())
    if (kind.name == name) return kind;
  throw Error("the cache has no entries of the kind '" + std::string(name) + "'");
}

bool is_valid_entry_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

OpenedFile open_trusted(int parent, const std::string& name, int flags, const fs::path& path) {
  // O_NONBLOCK: open() would block on a FIFO
  OpenedFile result{FileDescriptor(::openat(parent, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), {}};
  const bool has_status = result.file ? ::fstat(result.file.get(), &result.status) == 0
                                      : ::fstatat(parent, name.c_str(), &result.status, AT_SYMLINK_NOFOLLOW) == 0;
  const std::string reason = has_status ? find_distrust_reason(result.status) : std::string();
  if (!reason.empty()) warn_untrusted(path, result.status.st_uid, reason, suggest_fix(path, result.status));
  if (result.file && (!has_status || !reason.empty())) result.file = FileDescriptor::from_errno(EPERM);
  return result;
}

FileDescriptor open_cache(bool create) {
  const auto path = get_cache_directory();
  if (!path) return FileDescriptor::from_errno(ENOENT);
  FileDescriptor cache = open_trusted(AT_FDCWD, path->string(), O_RDONLY | O_DIRECTORY, *path).file;
  if (!create || cache.error() != ENOENT) return cache;
  if (is_home_of_other_user(*path)) return FileDescriptor::from_errno(EPERM);
  if (const int error = create_folders(*path)) return FileDescriptor::from_errno(error);
  return open_trusted(AT_FDCWD, path->string(), O_RDONLY | O_DIRECTORY, *path).file;
}

FileDescriptor open_cache_folder(const FileDescriptor& cache, const std::string& folder, bool create) {
  if (!cache) return FileDescriptor::from_errno(cache.error());
  FileDescriptor opened = FileDescriptor::from_errno(ENOENT);
  int parent = cache.get();
  fs::path path = get_cache_directory().value_or("");
  for (const fs::path& component : fs::path(folder)) {
    path /= component;
    if (create && ::mkdirat(parent, component.c_str(), kFolderMode) != 0 && errno != EEXIST) return FileDescriptor(-1);
    FileDescriptor next = open_trusted(parent, component.string(), O_RDONLY | O_DIRECTORY, path).file;
    if (!next) return next;
    opened = std::move(next);
    parent = opened.get();
  }
  return opened;
}

std::vector<std::string> list_folder(const FileDescriptor& folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // closedir() closes this descriptor
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), &::closedir);
  if (!stream) {
    ::close(copy);
    return names;
  }
  while (const dirent* const entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

}  // namespace pumice
