#include "shader/preamble/preamble_items.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>

namespace pumice {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

struct Item {
  std::string_view name, text;
  bool used = false;
};

// "#define name...", "type name(...)", "struct name {", "type name;"
std::string_view name_of(std::string_view text) {
  const auto words = words_of(text.substr(0, text.find_first_of("({;", text.starts_with('#') ? text.find("define") + 8 : 0)));
  if (text.starts_with('#')) return words.size() > 1 ? words[1] : std::string_view();
  return words.empty() ? std::string_view() : words.back();
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
}

// The bytes of the item at the start of `text`, which starts with neither a blank line nor a comment.
size_t item_length(std::string_view text) {
  const bool macro = text.starts_with('#');
  std::ptrdiff_t depth = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view line = first_line(text.substr(at));
    at += line.size();
    depth += std::ranges::count(line, '{') - std::ranges::count(line, '}');
    const bool open = macro ? line.ends_with("\\\n") : depth > 0;
    if (!open) return at;
  }
  return text.size();
}

std::vector<Item> items_of(std::string_view catalogue) {
  std::vector<Item> items;
  while (!catalogue.empty()) {
    const std::string_view line = first_line(catalogue);
    const bool skipped = line == "\n" || line.starts_with("//");
    const size_t length = skipped ? line.size() : item_length(catalogue);
    if (!skipped) items.push_back({name_of(catalogue.substr(0, length)), catalogue.substr(0, length)});
    catalogue.remove_prefix(length);
  }
  return items;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at && (text[at] < '0' || text[at] > '9')) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string used_items(std::string_view catalogue, const std::vector<std::string_view>& words) {
  auto items = items_of(catalogue);
  std::unordered_multimap<std::string_view, size_t> by_name;
  for (size_t i = 0; i < items.size(); ++i) by_name.emplace(items[i].name, i);
  std::vector<std::string_view> open(words);
  while (!open.empty()) {
    const auto [begin, end] = by_name.equal_range(open.back());
    open.pop_back();
    for (auto found = begin; found != end; ++found) {
      Item& item = items[found->second];
      if (item.used) continue;
      item.used = true;
      const auto more = words_of(item.text);
      open.insert(open.end(), more.begin(), more.end());
    }
  }
  std::string text;
  for (const auto& item : items)
    if (item.used) text += item.text;
  return text;
}

}  // namespace pumice
