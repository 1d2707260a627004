#include "shader/preamble/preamble_library.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "shader/source/scanned_source.h"

namespace pumice {
namespace {

// Returns the name in "#define name...", "type name(...)", "struct name {" or "type name;"
std::string_view parse_item_name(std::string_view text) {
  const auto identifiers = find_identifiers(text.substr(0, text.find_first_of("({;", text.starts_with('#') ? text.find("define") + 8 : 0)));
  if (text.starts_with('#')) return identifiers.size() > 1 ? identifiers[1] : std::string_view();
  return identifiers.empty() ? std::string_view() : identifiers.back();
}

std::string_view get_first_line(std::string_view text) {
  return text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
}

// Returns the length of the item at the start of `text`, which must not start with a blank line or a comment.
size_t find_item_length(std::string_view text) {
  const bool macro = text.starts_with('#');
  std::ptrdiff_t depth = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view line = get_first_line(text.substr(at));
    at += line.size();
    depth += std::ranges::count(line, '{') - std::ranges::count(line, '}');
    const bool open = macro ? line.ends_with("\\\n") : depth > 0;
    if (!open) return at;
  }
  return text.size();
}

}  // namespace

PreambleLibrary::PreambleLibrary(std::string library_source) : text_(std::move(library_source)) {
  for (std::string_view rest = text_; !rest.empty();) {
    const std::string_view line = get_first_line(rest);
    const bool is_skipped = line == "\n" || line.starts_with("//");
    const std::string_view text = rest.substr(0, is_skipped ? line.size() : find_item_length(rest));
    if (!is_skipped) items_.push_back({parse_item_name(text), text, find_identifiers(text)});
    rest.remove_prefix(text.size());
  }
  for (size_t i = 0; i < items_.size(); ++i) by_name_.emplace(items_[i].name, i);
}

std::string PreambleLibrary::select_items(const std::vector<std::string_view>& identifiers) const {
  std::vector<bool> is_used(items_.size(), false);
  std::vector<std::string_view> pending(identifiers);
  while (!pending.empty()) {
    const auto [begin, end] = by_name_.equal_range(pending.back());
    pending.pop_back();
    for (auto found = begin; found != end; ++found) {
      if (is_used[found->second]) continue;
      is_used[found->second] = true;
      const auto& more = items_[found->second].identifiers;
      pending.insert(pending.end(), more.begin(), more.end());
    }
  }
  std::string text;
  for (size_t i = 0; i < items_.size(); ++i)
    if (is_used[i]) text += items_[i].text;
  return text;
}

}  // namespace pumice
