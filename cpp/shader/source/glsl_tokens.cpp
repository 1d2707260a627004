#include "shader/source/glsl_tokens.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace pumice {
namespace {

bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_word_start(c) || is_digit(c);
}

// Tokenizes a source in one pass.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (skip_whitespace()) {
      if (source_[at_] == '#' && line_is_blank_) directive_ = ++directives_;
      line_is_blank_ = false;
      push_next_token();
    }
    return std::move(tokens_);
  }

 private:
  // Returns the character at this distance; NUL past the end.
  char peek(size_t distance) const { return at_ + distance < source_.size() ? source_[at_ + distance] : '\0'; }

  void advance(size_t count) {
    for (; count > 0 && at_ < source_.size(); --count)
      if (source_[at_++] == '\n') ++line_;
  }

  void end_line() {
    advance(1);
    directive_ = 0;
    line_is_blank_ = true;
  }

  // Returns the length of a line continuation (backslash and newline), or 0. Hot: every kernel's source is scanned to compute its key.
  size_t match_continuation() const {
    if (peek(0) != '\\') return 0;
    return peek(1) == '\n' ? 2 : peek(1) == '\r' && peek(2) == '\n' ? 3 : 0;
  }

  void skip_line_comment() {
    while (at_ < source_.size() && source_[at_] != '\n') advance(std::max<size_t>(match_continuation(), 1));
  }

  void skip_block_comment() {
    const size_t end = source_.find("*/", at_ + 2);
    advance(end == std::string_view::npos ? source_.size() : end + 2 - at_);
  }

  // Skips to the next token; returns false at the end.
  bool skip_whitespace() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (const size_t num_chars = match_continuation())
        advance(num_chars);
      else if (c == '\n')
        end_line();
      else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f')
        advance(1);
      else if (c == '/' && peek(1) == '/')
        skip_line_comment();
      else if (c == '/' && peek(1) == '*')
        skip_block_comment();
      else
        return true;
    }
    return false;
  }

  void push_token(TokenKind kind, size_t length) {
    tokens_.push_back({kind, directive_, source_.substr(at_, length), at_, line_});
    advance(length);
  }

  void push_next_token() {
    const char c = source_[at_];
    if (is_word_start(c)) return push_token(TokenKind::word, match_while(is_word));
    if (is_digit(c)) return push_token(TokenKind::number, match_while([](char d) { return is_word(d) || d == '.'; }));
    if (c == '"') return push_token(TokenKind::string, match_string());
    push_token(TokenKind::punctuation, 1);
  }

  template <typename Predicate>
  size_t match_while(Predicate predicate) const {
    size_t end = at_ + 1;
    while (end < source_.size() && predicate(source_[end])) ++end;
    return end - at_;
  }

  size_t match_string() const {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != '"' && source_[end] != '\n') end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return source_.size() - at_;
    return end - at_ + (source_[end] == '"' ? 1 : 0);
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0, line_ = 1;
  uint32_t directive_ = 0, directives_ = 0;
  bool line_is_blank_ = true;
};

std::string_view strip_quotes(std::string_view text) {
  if (text.starts_with('"')) text.remove_prefix(1);
  if (text.ends_with('"')) text.remove_suffix(1);
  return text;
}

std::optional<size_t> parse_number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > UINT32_MAX) return {};
  return value;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::vector<std::vector<Token>> find_directives(const std::vector<Token>& tokens, std::string_view name) {
  std::vector<std::vector<Token>> lines_found;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const bool second = tokens[i].directive != 0 && tokens[i - 1].directive == tokens[i].directive &&
                        (i == 1 || tokens[i - 2].directive != tokens[i].directive);
    if (!second || tokens[i].text != name) continue;
    auto& line = lines_found.emplace_back();
    for (size_t j = i; j < tokens.size() && tokens[j].directive == tokens[i].directive; ++j) line.push_back(tokens[j]);
  }
  return lines_found;
}

std::vector<SourceLine> map_source_lines(std::string_view source) {
  std::vector<SourceLine> lines;
  const auto all = find_directives(tokenize(source), "line");
  auto next = all.begin();
  SourceLine current{"", 1};
  const size_t count = static_cast<size_t>(std::ranges::count(source, '\n')) + 1;
  for (size_t line = 1; line <= count; ++line, ++current.line) {
    lines.push_back(current);
    if (next == all.end() || next->front().line != line) continue;
    if (const auto number = next->size() > 1 ? parse_number((*next)[1].text) : std::nullopt) {
      current.line = *number - 1;  // #line sets the number of the line after it
      if (next->size() > 2 && (*next)[2].kind == TokenKind::string) current.file = strip_quotes((*next)[2].text);
    }
    ++next;
  }
  return lines;
}

std::string_view get_line(std::string_view source, size_t line) {
  for (; line > 1; --line) {
    const size_t end = source.find('\n');
    if (end == std::string_view::npos) return {};
    source.remove_prefix(end + 1);
  }
  source = source.substr(0, source.find('\n'));
  if (source.ends_with('\r')) source.remove_suffix(1);
  return source;
}

}  // namespace pumice
