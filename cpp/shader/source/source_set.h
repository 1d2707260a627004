// A shader's source with everything that it may include, found without a compiler.
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

#include "shader/source/source_facts.h"

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
struct Includes {
  std::map<std::string, std::string> sources_by_path;  // sources by path
  std::vector<std::string> folders;                    // folders in search order
  bool on_disk = false;                                // whether the shader's name is its path
  std::shared_ptr<FileCache> files = {};               // null: every compilation rereads the files
};

struct SourceFile {
  std::string name;
  std::string text;
  bool on_disk = false;
  std::string alias;                         // its name in compiler messages, without characters that could be parsed wrongly
  std::shared_ptr<const SourceFacts> facts;  // facts of `text`
};

// The files of one compilation, the user's own first. Includes are collected even from disabled conditional code; a missing include is an
// error only when the compiler reaches it.
class SourceSet {
 public:
  SourceSet(std::string name, std::string text, const Includes& includes);

  const std::vector<SourceFile>& files() const { return files_; }
  std::vector<std::string> searched_files() const;  // paths on disk, whether found or not
  void transform_sources(const std::function<std::string(const std::string&)>& change);
  // Returns the file that `path` resolves to from file `includer`.
  std::optional<size_t> find(const std::string& path, size_t includer) const;
  std::optional<size_t> find_by_alias(std::string_view alias) const;
  // Returns an error message that lists the locations searched.
  std::string describe_missing_include(const std::string& path, size_t includer) const;

 private:
  size_t add(std::string name, std::string text, bool on_disk);
  void scan(size_t file);
  std::optional<size_t> load(const std::string& path, size_t includer);
  std::optional<size_t> load_file(const std::string& name);
  std::optional<size_t> load_in_memory(const std::string& name);
  std::optional<size_t> load_embedded(const std::string& name);
  std::optional<size_t> add_once(const std::string& key, const std::string& name, std::optional<std::string> text, bool on_disk);

  Includes search_path_;
  std::vector<SourceFile> files_;
  std::map<std::string, std::optional<size_t>> loaded_;        // keyed by kind and name
  std::map<std::pair<size_t, std::string>, size_t> includes_;  // (includer, path) -> file
};

}  // namespace pumice
