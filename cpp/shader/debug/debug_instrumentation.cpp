#include "shader/debug/debug_instrumentation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "shader/debug/debug_functions.h"
#include "shader/debug/printf_format.h"
#include "shader/source/compiler_diagnostics.h"
#include "shader/source/glsl_tokens.h"

namespace pumice {
namespace {

constexpr std::string_view kPrintfNames[] = {"printf", "NCNN_LOGE", "debugPrintfEXT"};
constexpr std::string_view kLiteralPrefix = "pumice_text_";

bool is_printf_name(std::string_view word) {
  return std::ranges::find(kPrintfNames, word) != std::end(kPrintfNames);
}

bool calls_printf(std::string_view text) {
  const auto has = [text](std::string_view function) { return text.find(function) != std::string_view::npos; };
  if (std::ranges::none_of(kPrintfNames, has)) return false;  // most sources do not print: skip tokenizing
  const auto tokens = tokenize(text);
  return std::ranges::any_of(tokens, [](const Token& token) { return token.kind == TokenKind::word && is_printf_name(token.text); });
}

std::optional<size_t> parse_literal_index(const Token& token) {
  if (!token.text.starts_with(kLiteralPrefix)) return {};
  size_t number = 0;
  std::from_chars(token.text.data() + kLiteralPrefix.size(), token.text.data() + token.text.size(), number);
  return number;
}

// Returns whether a string token is a literal rather than the file name of an #include or #line directive.
bool is_string_literal(const std::vector<Token>& tokens, size_t string) {
  if (tokens[string].directive == 0) return true;
  size_t first = string;
  while (first > 0 && tokens[first - 1].directive == tokens[string].directive) --first;
  return tokens[first + 1].text == "define";
}

}  // namespace

// A printf call in preprocessed source.
struct DebugInstrumentation::PrintfCall {
  const Token* name = nullptr;
  SourceLine location;
  size_t number = 0;
  std::vector<std::vector<Token>> arguments;  // arguments[0] is the format
};

// Replacements in a source string, sorted by offset.
struct DebugInstrumentation::TextEdits {
  struct TextEdit {
    size_t offset, removed;
    std::string added;
  };
  std::vector<TextEdit> all;

  void replace(size_t begin, size_t end, std::string text) { all.push_back({begin, end - begin, std::move(text)}); }
  std::string apply(const std::string& text) const {
    std::string result;
    size_t copied_end = 0;
    for (const auto& [offset, removed, added] : all) {
      result.append(text, copied_end, offset - copied_end).append(added);
      copied_end = offset + removed;
    }
    return result.append(text, copied_end);
  }
};

DebugInstrumentation::DebugInstrumentation(const SourceSet& sources, std::string macros, const ShaderOptions& options)
    : original_sources_(sources), rewritten_sources_(sources), macros_(std::move(macros)), options_(options), enabled_(options.debug) {
  enabled_ = enabled_ || calls_printf(macros_) ||
             std::ranges::any_of(sources.files(), [](const SourceFile& file) { return calls_printf(file.text); });
  if (!enabled_) return;
  rewritten_sources_.transform_sources([this](const std::string& text) { return replace_literals(text); });
  macros_ = replace_literals(macros_);
}

std::string DebugInstrumentation::replace_literals(const std::string& text) {
  TextEdits edits;
  const auto tokens = tokenize(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const bool is_terminated = token.kind == TokenKind::string && token.text.size() > 1 && token.text.ends_with('"');
    if (!is_terminated || !is_string_literal(tokens, i)) continue;
    edits.replace(token.offset, token.offset + token.text.size(), std::string(kLiteralPrefix) + std::to_string(literals_.size()));
    literals_.emplace_back(token.text);
  }
  return edits.apply(text);
}

ShaderCompileError DebugInstrumentation::make_error_at(const PrintfCall& call, std::string_view token, const std::string& text) const {
  return make_compile_error({format_message_at(original_sources_, call.location.file, call.location.line, token, text)});
}

void DebugInstrumentation::rewrite_printf_call(const PrintfCall& call, TextEdits& edits) {
  const std::string name(call.name->text);
  std::string format, literal;
  for (const Token& token : call.arguments.front()) {
    const auto number = parse_literal_index(token);
    if (!number) throw make_error_at(call, name, "the first argument of " + name + " must be its format, a string literal");
    if (literal.empty()) literal = literals_[*number];
    try {
      format += unescape_literal(literals_[*number]);
    } catch (const Error& error) {
      throw make_error_at(call, literals_[*number], error.what());
    }
  }
  std::vector<ConversionSpecifier> conversions;
  try {
    conversions = parse_conversions(format);
  } catch (const Error& error) {
    throw make_error_at(call, literal, error.what());
  }
  const size_t num_arguments = call.arguments.size() - 1;
  if (num_arguments != conversions.size())
    throw make_error_at(call, literal,
                        "the format of " + name + " has " + std::to_string(conversions.size()) +
                            " conversions: expected as many arguments, given " + std::to_string(num_arguments));
  const auto& first = call.arguments.front();
  edits.replace(call.name->offset, call.name->offset + name.size(), std::string(kPrintFunction) + std::to_string(call.number));
  const size_t end = num_arguments > 0 ? call.arguments[1].front().offset : first.back().offset + first.back().text.size();
  const std::string_view removed(first.front().text.data(), end - first.front().offset);
  edits.replace(first.front().offset, end, std::string(static_cast<size_t>(std::ranges::count(removed, '\n')), '\n'));
  for (size_t i = 0; i < num_arguments; ++i) {
    const auto& argument = call.arguments[i + 1];
    const size_t begin = argument.front().offset, stop = argument.back().offset + argument.back().text.size();
    edits.replace(begin, begin,
                  std::string(kArgumentFunction) + std::to_string(call.number) + "_" + std::to_string(i) + "(" +
                      get_word_converter_name(conversions[i]) + "(");
    edits.replace(stop, stop, "))");
  }
  formats_.push_back({get_display_name(original_sources_, call.location.file), static_cast<uint32_t>(call.location.line), format});
  printf_names_.push_back(name);
}

std::string DebugInstrumentation::instrument(const std::string& preprocessed) {
  formats_.clear();
  printf_names_.clear();
  const auto tokens = tokenize(preprocessed);
  const auto lines = map_source_lines(preprocessed);
  const auto is_code = [&](const Token& token) { return token.directive == 0 && !lines.at(token.line - 1).file.empty(); };
  std::set<std::string_view> user_functions;  // user-defined functions have precedence
  int depth = 0;
  for (const Token& token : tokens) {
    if (token.directive != 0) continue;
    depth += token.text == "{" ? 1 : token.text == "}" ? -1 : 0;
    if (depth == 0 && is_printf_name(token.text)) user_functions.insert(token.text);
  }
  TextEdits edits;
  size_t insertion = preprocessed.size(), insertion_line = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (!is_code(token)) continue;
    if (insertion_line == 0) {
      insertion_line = token.line;
      insertion = preprocessed.rfind('\n', token.offset) + 1;
      edits.replace(insertion, insertion, "");  // placeholder for the declarations, which depend on the calls
    }
    PrintfCall call{&token, lines.at(token.line - 1), formats_.size(), {}};
    if (const auto literal = parse_literal_index(token))
      throw make_error_at(call, literals_[*literal], "a string literal is allowed only as the format of printf");
    const bool is_call = i + 1 < tokens.size() && tokens[i + 1].text == "(" && (i == 0 || tokens[i - 1].text != ".");
    if (!is_printf_name(token.text) || user_functions.contains(token.text) || !is_call) continue;
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
      if (argument.empty()) throw make_error_at(call, token.text, std::string(token.text) + " has an empty argument");
    rewrite_printf_call(call, edits);
  }
  if (insertion_line == 0 || (formats_.empty() && !options_.debug)) return preprocessed;
  const SourceLine location = lines.at(insertion_line - 1);
  edits.all.front().added = "#line 1 \"<debug>\"" + make_debug_functions(preprocessed, formats_, options_.debug) + "#line " +
                            std::to_string(location.line) + " \"" + location.file + "\"\n";
  return edits.apply(preprocessed);
}

// Describes the expected type of a printf argument by its function; "pumice_argument_3_0": first argument of the fourth call.
std::string DebugInstrumentation::describe_argument_error(std::string_view subject) const {
  size_t number = 0, argument = 0;
  const char* end = subject.data() + subject.size();
  const auto [next, error] = std::from_chars(subject.data() + kArgumentFunction.size(), end, number);
  if (error != std::errc() || number >= formats_.size() || next == end) return {};
  std::from_chars(next + 1, end, argument);
  const std::string& format = formats_[number].text;
  const auto conversions = parse_conversions(format);
  if (argument >= conversions.size()) return {};
  const ConversionSpecifier& conversion = conversions[argument];
  return "'" + printf_names_[number] + "' : argument " + std::to_string(argument + 1) + " after the format does not fit '" +
         format.substr(conversion.begin, conversion.end - conversion.begin) + "': expected " + conversion.describe_expected_type();
}

std::string DebugInstrumentation::translate_compiler_log(std::string_view log) const {
  std::string result;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    const size_t quote = line.find("'" + std::string(kArgumentFunction));
    const size_t close = quote == std::string_view::npos ? quote : line.find('\'', quote + 1);
    const std::string message = close == std::string_view::npos ? "" : describe_argument_error(line.substr(quote + 1, close - quote - 1));
    result += message.empty() ? std::string(line) : std::string(line.substr(0, quote)) + message;
    result += '\n';
  }
  return result;
}

}  // namespace pumice
