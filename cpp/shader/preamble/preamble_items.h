// A text of GLSL as its top-level items, macros and functions, of which a shader gets those that it uses.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumice {

// The items of a catalogue: a #define with its continued lines, or a function, structure or variable.
class CatalogueItems {
 public:
  explicit CatalogueItems(std::string catalogue);
  CatalogueItems(const CatalogueItems&) = delete;  // items are parts of the text that is held
  CatalogueItems& operator=(const CatalogueItems&) = delete;
  const std::string& text() const { return text_; }
  // The items that `words` name, and those that these name in turn, in the order of the catalogue. Items of one name (overloads) are taken
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
