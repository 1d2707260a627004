// A shader's text with the texts of everything it may include, found without a compiler.
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

#include "shader/text/text_facts.h"

namespace pumice {

// Files as they were when they were first asked for: all builds of one kernel are of the same text. Thread-safe.
class FileTexts {
 public:
  std::optional<std::string> read(const std::string& path);  // nullopt where there is no such file

 private:
  std::mutex mutex_;
  std::map<std::string, std::optional<std::string>> texts_;
};

// The places where #include lines find their texts: a file beside the one that includes, `texts`, `folders`, the embedded shaders.
struct Includes {
  std::map<std::string, std::string> texts;  // by path
  std::vector<std::string> folders;          // in this order
  bool on_disk = false;                      // the shader's name is the path of its file
  std::shared_ptr<FileTexts> files = {};     // none: every compile reads the files anew
};

struct SourceFile {
  std::string name;
  std::string text;
  bool on_disk = false;
  std::string alias;  // the compiler's name for it, free of characters that could be taken for anything else in its messages
  std::shared_ptr<const TextFacts> facts;  // of the text
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
  // The reason why there is none: the places where it was looked for.
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
