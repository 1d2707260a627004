#include "shader/source/compiler_diagnostics.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "shader/source/anonymous_blocks.h"
#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

constexpr size_t kMaxColumns = 200;        // maximum number of columns shown per line
constexpr size_t kMaxMessageLength = 500;  // maximum number of characters of a message that quotes the shader
constexpr size_t kMaxMessages = 20;        // maximum number of messages, because locating each takes time

// A source position in a compiler message.
struct MessagePosition {
  std::string_view file;
  size_t line = 0;
};

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<size_t> parse_line_number(std::string_view digits) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return value;
}

// Removes "file:line: " from the front; file names from #line may contain colons.
std::optional<MessagePosition> parse_position(std::string_view& text) {
  for (size_t colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
    const size_t end = text.find(": ", colon + 1);
    if (end == std::string_view::npos) return {};
    const auto line = parse_line_number(text.substr(colon + 1, end - colon - 1));
    if (!line) continue;
    const MessagePosition position{text.substr(0, colon), *line};
    text.remove_prefix(end + 2);
    return position;
  }
  return {};
}

// Returns the token that a message is about: "'q' : undeclared identifier" or "... unexpected '}', expecting ...".
std::string_view find_subject_token(std::string_view text) {
  const size_t from = text.starts_with("'") && !text.starts_with("'' ") ? 0 : text.find("unexpected '");
  if (from == std::string_view::npos) return {};
  const size_t open = text.find('\'', from);
  const size_t close = text.find('\'', open + 1);
  return close == std::string_view::npos ? std::string_view() : text.substr(open + 1, close - open - 1);
}

bool has_token(std::string_view line, std::string_view token) {
  return !token.empty() && std::ranges::any_of(tokenize(line), [&](const Token& candidate) { return candidate.text == token; });
}

// Returns the physical line of `text` for line `line` of `file`. If #line gives several lines the same number, prefers the one with the
// token, else the last.
std::optional<size_t> find_physical_line(std::string_view text, std::string_view file, size_t line, std::string_view token) {
  const auto lines = map_source_lines(text);
  std::optional<size_t> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view current = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(current.size() + 1, text.size()));
    if (lines[i].line != line || lines[i].file != file) continue;
    found = i + 1;
    if (has_token(current, token)) break;
  }
  return found;
}

std::optional<std::string_view> find_source_line(const SourceSet& sources, const MessagePosition& position, std::string_view token) {
  const auto file_index = sources.find_file_by_alias(position.file);
  for (size_t i = 0; i < sources.files().size(); ++i) {
    if (file_index && *file_index != i) continue;
    const std::string& text = sources.files()[i].text;
    if (const auto line = find_physical_line(text, file_index ? "" : position.file, position.line, token)) return get_line(text, *line);
  }
  return {};
}

// Returns the offset of the token as a whole word, else of its first occurrence, else of the first nonblank character.
size_t find_column(std::string_view line, std::string_view token) {
  for (const Token& candidate : tokenize(line))
    if (!token.empty() && candidate.text == token) return candidate.offset;
  const size_t found = token.empty() ? std::string_view::npos : line.find(token);
  if (found != std::string_view::npos) return found;
  return std::min(line.find_first_not_of(" \t"), line.size());
}

// Returns the line with a caret below the column. A long line is cropped around the column.
std::string format_line_with_caret(std::string_view line, size_t column) {
  if (line.size() > kMaxColumns) {
    const size_t first = std::min(column - std::min(column, kMaxColumns / 2), line.size() - kMaxColumns);
    line = line.substr(first, kMaxColumns);
    column -= first;
  }
  std::string caret(line.substr(0, column));
  std::erase_if(caret, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; });  // drops UTF-8 continuation bytes
  std::ranges::replace_if(caret, [](char c) { return c != '\t'; }, ' ');
  return "\n" + std::string(line) + "\n" + caret + "^";
}

// Moves a position past the end of a file to its last line: if a source ends too early, glslang reports a token that it appended.
MessagePosition clamp_to_last_line(const SourceSet& sources, MessagePosition position, std::string& text) {
  const auto file_index = sources.find_file_by_alias(position.file);
  if (!file_index) return position;
  std::string_view file = trim(sources.files()[*file_index].text);
  file = std::string_view(sources.files()[*file_index].text)
             .substr(0, static_cast<size_t>(file.data() + file.size() - sources.files()[*file_index].text.data()));
  const size_t last = static_cast<size_t>(std::ranges::count(file, '\n')) + 1;
  constexpr std::string_view kAppendedWord = "unexpected INT";
  if (const size_t found = text.find(kAppendedWord); found != std::string::npos && position.line > last) {
    text.replace(found, kAppendedWord.size(), "unexpected end of the text");
    position.line = last;
  }
  return position;
}

bool is_summary_line(std::string_view text) {
  return text.find("compilation terminated") != std::string_view::npos || text.find("compilation errors.") != std::string_view::npos;
}

std::string translate_message(std::string_view text, const SourceSet& sources) {
  if (const auto position = parse_position(text)) {
    std::string message_text(text);
    const MessagePosition location = clamp_to_last_line(sources, *position, message_text);
    const std::string token(find_subject_token(message_text));
    if (message_text.find("nameless block contains a member that already has a name") != std::string::npos)
      message_text += describe_shared_member(sources, token);
    return format_message_at(sources, location.file, location.line, token, message_text);
  }
  if (text.find("Missing entry point") != std::string_view::npos) text = "there is no main(): a shader has one, void main() { ... }";
  return sources.files().front().name + ": " + std::string(trim(text));
}

}  // namespace

std::string get_display_name(const SourceSet& sources, std::string_view file) {
  const auto file_index = sources.find_file_by_alias(file);
  return file_index ? sources.files()[*file_index].name : std::string(file);
}

std::string format_message_at(const SourceSet& sources, std::string_view file, size_t line, std::string_view token, std::string_view text) {
  const std::string location = get_display_name(sources, file) + ":" + std::to_string(line) + ":";
  text = trim(text);
  if (text.starts_with("'' :")) text = trim(text.substr(4));
  if (text == "memory exhausted") text = "brackets, operators or statements nest too deeply within each other";
  const std::string shortened = std::string(text.substr(0, kMaxMessageLength)) + (text.size() > kMaxMessageLength ? " ..." : "");
  text = shortened;
  const auto found = find_source_line(sources, {file, line}, token);
  if (!found || trim(*found).empty()) return location + " " + std::string(text);
  const size_t column = find_column(*found, token);
  return location + std::to_string(column + 1) + ": " + std::string(text) + format_line_with_caret(*found, column);
}

std::string sanitize_text(std::string text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = first < 0x20                    ? (first == '\n' || first == '\t' ? 1 : 0)
                          : first < 0x80                  ? 1
                          : first >= 0xf0 && first < 0xf5 ? 4
                          : first >= 0xe0 && first < 0xf0 ? 3
                          : first >= 0xc2 && first < 0xe0 ? 2
                                                          : 0;
    bool is_valid = length > 0 && i + length <= text.size();
    for (size_t k = 1; is_valid && k < length; ++k) is_valid = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    if (!is_valid) text[i] = '?';
    i += is_valid ? length : 1;
  }
  return text;
}

Diagnostics parse_compiler_log(std::string_view log, const SourceSet& sources) {
  Diagnostics result;
  std::vector<std::string>* last = nullptr;
  size_t num_omitted = 0;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (trim(line).empty() || is_summary_line(line)) continue;
    if (result.errors.size() + result.warnings.size() >= kMaxMessages) {
      ++num_omitted;
      continue;
    }
    if (line.starts_with("ERROR: "))
      (last = &result.errors)->push_back(translate_message(line.substr(7), sources));
    else if (line.starts_with("WARNING: "))
      (last = &result.warnings)->push_back(translate_message(line.substr(9), sources));
    else if (last)
      last->back() += "\n" + std::string(line);
    else
      (last = &result.errors)->push_back(translate_message(line, sources));
  }
  for (auto& warning : result.warnings) warning = sanitize_text(std::move(warning));
  if (num_omitted > 0)
    (result.errors.empty() ? result.warnings : result.errors).push_back("... and " + std::to_string(num_omitted) + " more lines");
  return result;
}

ShaderCompileError make_compile_error(std::vector<std::string> messages) {
  if (messages.empty()) messages = {"the shader compiler failed without a message"};
  std::string text;
  for (auto& message : messages) text += (text.empty() ? "" : "\n") + (message = sanitize_text(std::move(message)));
  return {text, std::move(messages)};
}

}  // namespace pumice
