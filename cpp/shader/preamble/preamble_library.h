// GLSL source split into top-level items (macros and functions), so that a shader includes only those that it uses.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumice {

// The items of a catalogue: a #define with its continuation lines, or a function, structure or variable.
class CatalogueItems {
 public:
  explicit CatalogueItems(std::string catalogue);
  CatalogueItems(const CatalogueItems&) = delete;  // items refer to text_
  CatalogueItems& operator=(const CatalogueItems&) = delete;
  const std::string& text() const { return text_; }
  // Returns the items named in `words` and their transitive dependencies, in catalogue order. Overloads share a name and are included
  // together.
  std::string used(const std::vector<std::string_view>& words) const;

 private:
  struct Item {
    std::string_view name, text;
    std::vector<std::string_view> words;
  };

  const std::string text_;
  std::vector<Item> items_;
  std::unordered_multimap<std::string_view, size_t> by_name_;
};

}  // namespace pumice
