// A shader's text with the texts of everything it may include, found without a compiler.
#pragma once

#include <cstddef>
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
  std::string alias;  // what the compiler calls it: free of characters that could be taken for anything else in its messages
};

// The files of one compile: the user's own is the first. Every #include line counts, also those that conditions leave out;
// an include that is not found is an error only when the compiler gets to it.
class SourceSet {
 public:
  SourceSet(std::string name, std::string text, const IncludeLoader& loader);

  const std::vector<SourceFile>& files() const { return files_; }
  // The file that `path` means in file `includer`.
  std::optional<size_t> find(const std::string& path, size_t includer) const;
  std::optional<size_t> by_alias(std::string_view alias) const;

 private:
  size_t add(std::string name, std::string text);
  void scan(size_t file, const IncludeLoader& loader);
  std::optional<size_t> load(const std::string& path, size_t includer, const IncludeLoader& loader);
  std::optional<size_t> load_as(const std::string& name, const IncludeLoader& loader);

  std::vector<SourceFile> files_;
  std::map<std::string, std::optional<size_t>> loaded_;        // by name
  std::map<std::pair<size_t, std::string>, size_t> includes_;  // (includer, path) -> file
};

}  // namespace pumice
