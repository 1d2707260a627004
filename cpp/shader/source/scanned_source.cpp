#include "shader/source/scanned_source.h"

#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace pumice {
namespace {

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Returns whether a source may have this preprocessor directive, to avoid tokenizing most sources. Blanks, comments and line continuations
// may separate the # and the name.
bool may_have_directive(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t before = at == 0 ? std::string_view::npos : text.find_last_not_of(" \t\v\f", at - 1);
    if (before != std::string_view::npos && std::string_view("#/\n").find(text[before]) != std::string_view::npos) return true;
  }
  return false;
}

// Returns the path of an #include line: "path" or <path>; empty if it is neither.
std::string parse_include_path(const std::vector<Token>& line, std::string_view source) {
  if (line.size() < 2) return {};
  const Token& first = line[1];
  if (first.kind == TokenKind::string && first.text.size() > 2) return std::string(first.text.substr(1, first.text.size() - 2));
  if (first.text != "<") return {};
  const std::string_view rest = get_line(source.substr(first.offset + 1), 1);
  const size_t end = rest.find('>');
  return end == std::string_view::npos ? std::string() : std::string(rest.substr(0, end));
}

// Caches scans by source text. Evicts the oldest ones when their texts exceed kMaxBytes in total.
class ScannedSourceCache {
 public:
  std::shared_ptr<const ScannedSource> get(const std::string& text) {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto cached = by_source_.find(text); cached != by_source_.end()) return cached->second;
    }
    auto scan = std::make_shared<const ScannedSource>(text);
    if (text.size() > kMaxBytes / 8) return scan;
    const std::scoped_lock lock(mutex_);
    const auto [existing, is_new] = by_source_.emplace(scan->text, scan);  // another thread may have added it first
    if (!is_new) return existing->second;
    bytes_ += scan->text.size();
    order_.push_back(scan);
    for (; bytes_ > kMaxBytes; order_.pop_front()) {
      bytes_ -= order_.front()->text.size();
      by_source_.erase(order_.front()->text);
    }
    return scan;
  }

 private:
  static constexpr size_t kMaxBytes = size_t{4} << 20;

  std::mutex mutex_;
  std::unordered_map<std::string_view, std::shared_ptr<const ScannedSource>> by_source_;  // keys are views of ScannedSource::text
  std::deque<std::shared_ptr<const ScannedSource>> order_;
  size_t bytes_ = 0;
};

}  // namespace

std::vector<std::string_view> find_identifiers(std::string_view text) {
  std::vector<std::string_view> identifiers;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word_char(text[end])) ++end;
    if (end > at && (text[at] < '0' || text[at] > '9')) identifiers.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return identifiers;
}

LiteralSuffixes find_literal_suffixes(std::string_view text) {
  LiteralSuffixes suffixes_found;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word_char(text[end])) ++end;
    if (end > at && text[at] >= '0' && text[at] <= '9') {
      suffixes_found.has_long |= text[end - 1] == 'l' || text[end - 1] == 'L';
      suffixes_found.has_short |= text[end - 1] == 's' || text[end - 1] == 'S';
    }
    at = end + 1;
  }
  return suffixes_found;
}

ScannedSource::ScannedSource(std::string source_text)
    : text(std::move(source_text)), suffixes(find_literal_suffixes(text)), has_token_pasting(text.find("##") != std::string::npos) {
  std::unordered_set<std::string_view> seen;
  std::string_view before;
  for (const auto word : find_identifiers(text)) {
    if (before == "struct") structures.push_back(word);
    if (seen.insert(word).second) identifiers.push_back(word);
    before = word;
  }
  if (!may_have_directive(text, "include") && !may_have_directive(text, "version")) return;
  const auto tokens = tokenize(text);
  if (auto lines = find_directives(tokens, "version"); !lines.empty()) version = std::move(lines.front());
  for (const auto& line : find_directives(tokens, "include"))
    if (auto path = parse_include_path(line, text); !path.empty()) includes.push_back(std::move(path));
}

std::shared_ptr<const ScannedSource> get_scanned_source(const std::string& text) {
  static auto* const cache = new ScannedSourceCache;  // never destroyed: a thread may still compile at exit
  return cache->get(text);
}

}  // namespace pumice
