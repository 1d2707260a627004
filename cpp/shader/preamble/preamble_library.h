// GLSL source split into top-level items (macros and functions), so that a shader includes only what it uses.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumice {

// Items of preamble source: a #define with its continuation lines, a function, a structure or a variable.
class PreambleLibrary {
 public:
  explicit PreambleLibrary(std::string library_source);
  PreambleLibrary(const PreambleLibrary&) = delete;  // items refer to text_
  PreambleLibrary& operator=(const PreambleLibrary&) = delete;
  const std::string& text() const { return text_; }
  // Returns the items named in `identifiers` and their transitive dependencies, in source order. Overloads share a name and are included
  // together.
  std::string select_items(const std::vector<std::string_view>& identifiers) const;

 private:
  struct PreambleItem {
    std::string_view name, text;
    std::vector<std::string_view> identifiers;
  };

  const std::string text_;
  std::vector<PreambleItem> items_;
  std::unordered_multimap<std::string_view, size_t> by_name_;
};

}  // namespace pumice
