// GLSL source split into top-level items (macros and functions), so that a shader includes only those that it uses.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumice {

// The items of a catalogue: a #define with its continuation lines, or a function, structure or variable.
class PreambleLibrary {
 public:
  explicit PreambleLibrary(std::string library_source);
  PreambleLibrary(const PreambleLibrary&) = delete;  // items refer to text_
  PreambleLibrary& operator=(const PreambleLibrary&) = delete;
  const std::string& text() const { return text_; }
  // Returns the items named in `identifiers` and their transitive dependencies, in catalogue order. Overloads share a name and are included
  // together.
  std::string selected(const std::vector<std::string_view>& identifiers) const;

 private:
  struct Item {
    std::string_view name, text;
    std::vector<std::string_view> identifiers;
  };

  const std::string text_;
  std::vector<Item> items_;
  std::unordered_multimap<std::string_view, size_t> by_name_;
};

}  // namespace pumice
