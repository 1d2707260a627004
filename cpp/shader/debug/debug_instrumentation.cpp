#include "shader/debug/debug_instrumentation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "shader/debug/debug_functions.h"
#include "shader/debug/print_format.h"
#include "shader/source/diagnostics.h"
#include "shader/source/tokens.h"

namespace pumice {
namespace {

constexpr std::string_view kCallees[] = {"printf", "NCNN_LOGE", "debugPrintfEXT"};
constexpr std::string_view kLiteralWord = "pumice_text_";

bool is_callee(std::string_view word) {
  return std::ranges::find(kCallees, word) != std::end(kCallees);
}

bool prints(std::string_view text) {
  const auto has = [text](std::string_view callee) { return text.find(callee) != std::string_view::npos; };
  if (std::ranges::none_of(kCallees, has)) return false;  // most sources do not print: skip tokenizing
  const auto tokens = tokenize(text);
  return std::ranges::any_of(tokens, [](const Token& token) { return token.kind == TokenKind::word && is_callee(token.text); });
}

std::optional<size_t> literal_number(const Token& token) {
  if (!token.text.starts_with(kLiteralWord)) return {};
  size_t number = 0;
  std::from_chars(token.text.data() + kLiteralWord.size(), token.text.data() + token.text.size(), number);
  return number;
}

// Returns whether a string in this preprocessor line is a string literal rather than a file name.
bool is_text_of(const std::vector<Token>& tokens, size_t string) {
  if (tokens[string].directive == 0) return true;
  size_t first = string;
  while (first > 0 && tokens[first - 1].directive == tokens[string].directive) --first;
  return tokens[first + 1].text == "define";
}

}  // namespace

// A printf call in preprocessed source.
struct DebugText::Call {
  const Token* name = nullptr;
  SourceLine place;
  size_t number = 0;
  std::vector<std::vector<Token>> arguments;  // the first is the format
};

// Edits of a text, sorted by offset.
struct DebugText::Edits {
  struct Edit {
    size_t offset, removed;
    std::string added;
  };
  std::vector<Edit> all;

  void replace(size_t begin, size_t end, std::string text) { all.push_back({begin, end - begin, std::move(text)}); }
  std::string apply(const std::string& text) const {
    std::string result;
    size_t done = 0;
    for (const auto& [offset, removed, added] : all) {
      result.append(text, done, offset - done).append(added);
      done = offset + removed;
    }
    return result.append(text, done);
  }
};

DebugText::DebugText(const SourceSet& sources, std::string macros, const ShaderOptions& options)
    : given_(sources), coded_(sources), macros_(std::move(macros)), options_(options), wanted_(options.debug) {
  wanted_ = wanted_ || prints(macros_) || std::ranges::any_of(sources.files(), [](const SourceFile& file) { return prints(file.text); });
  if (!wanted_) return;
  coded_.replace_texts([this](const std::string& text) { return add_words(text); });
  macros_ = add_words(macros_);
}

std::string DebugText::add_words(const std::string& text) {
  Edits edits;
  const auto tokens = tokenize(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const bool whole = token.kind == TokenKind::string && token.text.size() > 1 && token.text.ends_with('"');
    if (!whole || !is_text_of(tokens, i)) continue;
    edits.replace(token.offset, token.offset + token.text.size(), std::string(kLiteralWord) + std::to_string(literals_.size()));
    literals_.emplace_back(token.text);
  }
  return edits.apply(text);
}

ShaderCompileError DebugText::error_at(const Call& call, std::string_view token, const std::string& text) const {
  return compile_error({message_at(given_, call.place.file, call.place.line, token, text)});
}

void DebugText::rewrite_call(const Call& call, Edits& edits) {
  const std::string name(call.name->text);
  std::string format, literal;
  for (const Token& token : call.arguments.front()) {
    const auto number = literal_number(token);
    if (!number) throw error_at(call, name, "the first argument of " + name + " is its format: a text in quotes");
    if (literal.empty()) literal = literals_[*number];
    try {
      format += unescaped(literals_[*number]);
    } catch (const Error& error) {
      throw error_at(call, literals_[*number], error.what());
    }
  }
  std::vector<Conversion> conversions;
  try {
    conversions = conversions_of(format);
  } catch (const Error& error) {
    throw error_at(call, literal, error.what());
  }
  const size_t given = call.arguments.size() - 1;
  if (given != conversions.size())
    throw error_at(call, literal,
                   "the format of " + name + " has " + std::to_string(conversions.size()) +
                       " conversions: expected as many arguments, given " + std::to_string(given));
  const auto& first = call.arguments.front();
  edits.replace(call.name->offset, call.name->offset + name.size(), std::string(kPrintFunction) + std::to_string(call.number));
  const size_t end = given > 0 ? call.arguments[1].front().offset : first.back().offset + first.back().text.size();
  const std::string_view removed(first.front().text.data(), end - first.front().offset);
  edits.replace(first.front().offset, end, std::string(static_cast<size_t>(std::ranges::count(removed, '\n')), '\n'));
  for (size_t i = 0; i < given; ++i) {
    const auto& argument = call.arguments[i + 1];
    const size_t begin = argument.front().offset, stop = argument.back().offset + argument.back().text.size();
    edits.replace(begin, begin,
                  std::string(kArgumentFunction) + std::to_string(call.number) + "_" + std::to_string(i) + "(" +
                      words_function(conversions[i]) + "(");
    edits.replace(stop, stop, "))");
  }
  formats_.push_back({shown_name(given_, call.place.file), static_cast<uint32_t>(call.place.line), format});
  callees_.push_back(name);
}

std::string DebugText::rewrite(const std::string& preprocessed) {
  formats_.clear();
  callees_.clear();
  const auto tokens = tokenize(preprocessed);
  const auto lines = source_lines(preprocessed);
  const auto is_code = [&](const Token& token) { return token.directive == 0 && !lines.at(token.line - 1).file.empty(); };
  std::set<std::string_view> own;  // user-defined functions have precedence
  int depth = 0;
  for (const Token& token : tokens) {
    if (token.directive != 0) continue;
    depth += token.text == "{" ? 1 : token.text == "}" ? -1 : 0;
    if (depth == 0 && is_callee(token.text)) own.insert(token.text);
  }
  Edits edits;
  size_t insertion = preprocessed.size(), insertion_line = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (!is_code(token)) continue;
    if (insertion_line == 0) {
      insertion_line = token.line;
      insertion = preprocessed.rfind('\n', token.offset) + 1;
      edits.replace(insertion, insertion, "");  // placeholder for the declarations, which depend on the calls
    }
    Call call{&token, lines.at(token.line - 1), formats_.size(), {}};
    if (const auto literal = literal_number(token))
      throw error_at(call, literals_[*literal], "a text in quotes stands only as the format of printf");
    const bool called = i + 1 < tokens.size() && tokens[i + 1].text == "(" && (i == 0 || tokens[i - 1].text != ".");
    if (!is_callee(token.text) || own.contains(token.text) || !called) continue;
    call.arguments.emplace_back();
    int nested = 0;
    for (i += 2; i < tokens.size(); ++i) {
      const std::string_view text = tokens[i].text;
      if (nested == 0 && text == ")") break;
      nested += text == "(" || text == "[" || text == "{" ? 1 : text == ")" || text == "]" || text == "}" ? -1 : 0;
      if (nested == 0 && text == ",")
        call.arguments.emplace_back();
      else
        call.arguments.back().push_back(tokens[i]);
    }
    for (const auto& argument : call.arguments)
      if (argument.empty()) throw error_at(call, token.text, std::string(token.text) + " has an argument without text");
    rewrite_call(call, edits);
  }
  if (insertion_line == 0 || (formats_.empty() && !options_.debug)) return preprocessed;
  const SourceLine place = lines.at(insertion_line - 1);
  edits.all.front().added = "#line 1 \"<debug>\"" + debug_functions(preprocessed, formats_, options_.debug) + "#line " +
                            std::to_string(place.line) + " \"" + place.file + "\"\n";
  return edits.apply(preprocessed);
}

// "pumice_argument_3_0": the first argument of the fourth call.
std::string DebugText::argument_message(std::string_view subject) const {
  size_t number = 0, argument = 0;
  const char* end = subject.data() + subject.size();
  const auto [next, error] = std::from_chars(subject.data() + kArgumentFunction.size(), end, number);
  if (error != std::errc() || number >= formats_.size() || next == end) return {};
  std::from_chars(next + 1, end, argument);
  const std::string& format = formats_[number].text;
  const auto conversions = conversions_of(format);
  if (argument >= conversions.size()) return {};
  const Conversion& conversion = conversions[argument];
  return "'" + callees_[number] + "' : argument " + std::to_string(argument + 1) + " after the format does not fit '" +
         format.substr(conversion.begin, conversion.end - conversion.begin) + "': expected " + conversion.expected();
}

std::string DebugText::translate(std::string_view log) const {
  std::string result;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    const size_t quote = line.find("'" + std::string(kArgumentFunction));
    const size_t close = quote == std::string_view::npos ? quote : line.find('\'', quote + 1);
    const std::string message = close == std::string_view::npos ? "" : argument_message(line.substr(quote + 1, close - quote - 1));
    result += message.empty() ? std::string(line) : std::string(line.substr(0, quote)) + message;
    result += '\n';
  }
  return result;
}

}  // namespace pumice
