// A shader's source and all files that it may include, found without a compiler.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shader/source/scanned_source.h"

namespace pumice {

// Caches files as they were first read, so that all builds of a kernel use the same source. Thread-safe.
class FileCache {
 public:
  std::optional<std::string> read(const std::string& path);  // nullopt if the file does not exist

 private:
  std::mutex mutex_;
  std::map<std::string, std::optional<std::string>> contents_;
};

// Search path of #include: the including file's folder, `sources_by_path`, `folders`, the embedded shaders.
struct IncludeSearchPath {
  std::map<std::string, std::string> sources_by_path;  // in-memory sources, by include path
  std::vector<std::string> folders;                    // folders in search order
  bool on_disk = false;                                // whether the shader is a file on disk; its name is then the path
  std::shared_ptr<FileCache> files = {};               // null: every compilation rereads the files
};

struct SourceFile {
  std::string name;
  std::string text;
  bool on_disk = false;
  std::string alias;                          // name in compiler messages, without special characters
  std::shared_ptr<const ScannedSource> scan;  // result of scanning `text`
};

// The files of one compilation, the user's own first. Includes are collected even from disabled conditional code; a missing include is an
// error only when the compiler reaches it.
class SourceSet {
 public:
  SourceSet(std::string name, std::string text, const IncludeSearchPath& includes);

  const std::vector<SourceFile>& files() const { return files_; }
  std::vector<std::string> list_searched_files() const;  // paths on disk, whether found or not
  void transform_sources(const std::function<std::string(const std::string&)>& change);
  // Returns the file that `path` resolves to from file `includer`.
  std::optional<size_t> find_include(const std::string& path, size_t includer) const;
  std::optional<size_t> find_file_by_alias(std::string_view alias) const;
  // Returns an error message that lists the locations searched.
  std::string describe_missing_include(const std::string& path, size_t includer) const;

 private:
  size_t add_file(std::string name, std::string text, bool on_disk);
  void load_includes(size_t file);
  std::optional<size_t> load_include(const std::string& path, size_t includer);
  std::optional<size_t> load_file(const std::string& name);
  std::optional<size_t> load_in_memory(const std::string& name);
  std::optional<size_t> load_embedded(const std::string& name);
  std::optional<size_t> add_once(const std::string& key, const std::string& name, std::optional<std::string> text, bool on_disk);

  IncludeSearchPath search_path_;
  std::vector<SourceFile> files_;
  std::map<std::string, std::optional<size_t>> loaded_;        // keyed by kind and name
  std::map<std::pair<size_t, std::string>, size_t> includes_;  // (includer, path) -> file
};

}  // namespace pumice
