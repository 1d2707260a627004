// A shader's text with the texts of everything it may include, found without a compiler.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shader/shader.h"

namespace pumice {

struct SourceFile {
  std::string name;
  std::string text;
  bool on_disk = false;
  std::string alias;  // what the compiler calls it: free of characters that could be taken for anything else in its messages
};

// The files of one compile: the user's own is the first. Every #include line counts, also those that conditions leave out;
// an include that is not found is an error only when the compiler gets to it.
class SourceSet {
 public:
  SourceSet(std::string name, std::string text, const Includes& includes);

  const std::vector<SourceFile>& files() const { return files_; }
  std::vector<std::string> looked_for() const;  // paths on disk, found or not
  void replace_texts(const std::function<std::string(const std::string&)>& change);
  // The file that `path` means in file `includer`.
  std::optional<size_t> find(const std::string& path, size_t includer) const;
  std::optional<size_t> by_alias(std::string_view alias) const;
  // Why there is none: where it was looked for.
  std::string missing(const std::string& path, size_t includer) const;

 private:
  size_t add(std::string name, std::string text, bool on_disk);
  void scan(size_t file);
  std::optional<size_t> load(const std::string& path, size_t includer);
  std::optional<size_t> load_file(const std::string& name);
  std::optional<size_t> load_text(const std::string& name);
  std::optional<size_t> load_embedded(const std::string& name);
  std::optional<size_t> remember(const std::string& key, const std::string& name, std::optional<std::string> text, bool on_disk);

  Includes where_;
  std::vector<SourceFile> files_;
  std::map<std::string, std::optional<size_t>> loaded_;        // by kind and name
  std::map<std::pair<size_t, std::string>, size_t> includes_;  // (includer, path) -> file
};

}  // namespace pumice
