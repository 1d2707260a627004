#include "shader/source/source_limits.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shader/source/diagnostics.h"
#include "shader/source/macro_expansion.h"
#include "shader/source/tokens.h"

namespace pumice {
namespace {

using Tokens = std::vector<Token>;

// Token count of an expanded text or macro: a base, plus a factor per argument token. They are doubles, because these cannot wrap.
struct Growth {
  double base = 0;
  std::vector<double> per_argument;
  size_t depth = 0;  // nesting depth of macros
};

std::string too_large(std::string_view what, double given, size_t limit) {
  const std::string count = given < 1e15 ? std::to_string(static_cast<uint64_t>(given)) : "more than 10^15";
  return std::string(what) + ": given " + count + ", the limit is " + std::to_string(limit);
}

// Bounds the size of macro expansions without expanding them, except for pasted names. Conditions are ignored: if a macro has several
// definitions, the largest counts.
class MacroGrowth {
 public:
  // The file's tokens must outlive this object.
  void add(const Tokens& tokens) {
    for (size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (tokens[i].directive == 0 || tokens[i].text != "#" || tokens[i + 1].text != "define") continue;
      if (tokens[i + 1].directive == tokens[i].directive && tokens[i + 2].directive == tokens[i].directive) define(tokens, i + 2);
    }
  }

  const MacroDefinitions& definitions() const { return macros_; }
  bool pastes() const { return pastes_; }

  Growth of(const Token* begin, const Token* end, const std::vector<std::string_view>& parameters = {}) {
    Growth sum;
    sum.per_argument.resize(parameters.size());
    const Level level(depth_);
    if (depth_ > kMaxMacroDepth) {
      sum.depth = depth_;
      return sum;
    }
    for (const Token* at = begin; at < end;) at = add_token(sum, at, end, parameters);
    return sum;
  }

 private:
  struct Level {
    explicit Level(size_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    size_t& depth_;
  };

  void define(const Tokens& tokens, size_t name) {
    const auto in_line = [&](size_t i) { return i < tokens.size() && tokens[i].directive == tokens[name].directive; };
    Macro macro;
    size_t at = name + 1;
    macro.is_function = in_line(at) && tokens[at].text == "(" && tokens[at].offset == tokens[name].offset + tokens[name].text.size();
    if (macro.is_function) {
      for (++at; in_line(at) && tokens[at].text != ")"; ++at)
        if (tokens[at].kind == TokenKind::word) macro.parameters.push_back(tokens[at].text);
      at += in_line(at) ? 1 : 0;
    }
    macro.begin = tokens.data() + at;
    while (in_line(at)) ++at;
    macro.end = tokens.data() + at;
    for (const Token* token = macro.begin; token < macro.end; ++token)
      pastes_ = pastes_ || (token->text == "#" && token + 1 < macro.end && token[1].text == "#");
    for (const auto& parameter : macro.parameters)
      widest_ = std::max(
          widest_, static_cast<double>(std::count_if(macro.begin, macro.end, [&](const Token& token) { return token.text == parameter; })));
    macros_[tokens[name].text].push_back(std::move(macro));
  }

  const Token* add_token(Growth& sum, const Token* at, const Token* end, const std::vector<std::string_view>& parameters) {
    sum.base += 1;
    const auto parameter = std::ranges::find(parameters, at->text);
    if (parameter != parameters.end()) {
      sum.per_argument[static_cast<size_t>(parameter - parameters.begin())] += 1;
      return add_call(sum, at + 1, end, parameters, nullptr);
    }
    const Growth* macro = at->kind == TokenKind::word ? find(at->text) : nullptr;
    if (!macro) return at + 1;
    sum.base += macro->base;
    sum.depth = std::max(sum.depth, macro->depth + 1);
    return add_call(sum, at + 1, end, parameters, macro);
  }

  // Adds the bracketed arguments after a macro's name. `macro` is null for a parameter or a name that may end in a macro; the largest
  // factor then counts.
  const Token* add_call(Growth& sum, const Token* at, const Token* end, const std::vector<std::string_view>& parameters,
                        const Growth* macro) {
    if (at == end || at->text != "(") return at;
    const Token* argument = at + 1;
    size_t nested = 0, index = 0;
    for (const Token* last = argument; last < end; ++last) {
      if (last->text == "(") ++nested;
      const bool closes = last->text == ")" && nested == 0;
      if (closes || (last->text == "," && nested == 0)) {
        const bool known = macro && index < macro->per_argument.size();
        add_argument(sum, of(argument, last, parameters), known ? macro->per_argument[index] : widest_);
        argument = last + 1;
        ++index;
      }
      if (closes) return last + 1;
      if (last->text == ")") --nested;
    }
    return at;
  }

  static void add_argument(Growth& sum, const Growth& argument, double times) {
    times = std::max(times, 1.0);
    sum.base += times * argument.base;
    for (size_t i = 0; i < argument.per_argument.size(); ++i) sum.per_argument[i] += times * argument.per_argument[i];
    sum.depth = std::max(sum.depth, argument.depth + 1);
  }

  const Growth* find(std::string_view name) {
    const auto definitions = macros_.find(name);
    if (definitions == macros_.end()) return nullptr;
    const auto [entry, is_new] = known_.try_emplace(name);  // a macro is not expanded within itself, so it counts as nothing so far
    if (!is_new) return &entry->second;
    Growth largest;
    for (const auto& macro : definitions->second) {
      const Growth one = of(macro.begin, macro.end, macro.parameters);
      largest.base = std::max(largest.base, one.base);
      largest.depth = std::max(largest.depth, one.depth);
      largest.per_argument.resize(std::max(largest.per_argument.size(), one.per_argument.size()));
      for (size_t i = 0; i < one.per_argument.size(); ++i) largest.per_argument[i] = std::max(largest.per_argument[i], one.per_argument[i]);
    }
    return &(known_[name] = std::move(largest));
  }

  MacroDefinitions macros_;
  bool pastes_ = false;
  std::unordered_map<std::string_view, Growth> known_;
  double widest_ = 1;  // maximum number of uses of a parameter in one macro
  size_t depth_ = 0;
};

// Walks preprocessed source bracket by bracket.
class Parts {
 public:
  Parts(std::string_view text, const SourceSet& sources) : text_(text), sources_(sources), tokens_(tokenize(text)) {}

  void check() {
    frames_.push_back({});
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      if (tokens_[at_].directive != 0) continue;
      if (tokens_[at_].kind == TokenKind::word)
        take_word();
      else if (tokens_[at_].kind == TokenKind::punctuation)
        take_sign(tokens_[at_].text.front());
      expect(static_cast<double>(depth_), kMaxSourceDepth, "brackets and operators within each other");
    }
  }

 private:
  // An open bracket: the operators in its current element, and whether commas separate elements.
  struct Frame {
    size_t operators = 0;
    bool is_list = false;
    bool is_struct = false;
    std::string_view name;  // structure name
    double type_members = 1, members = 0;
  };

  void expect(double given, size_t limit, std::string_view what) const {
    if (given <= static_cast<double>(limit)) return;
    const auto lines = source_lines(text_);
    const Token& token = tokens_.at(at_);
    const SourceLine place = lines.at(token.line - 1);
    const std::string_view file = place.file.empty() ? sources_.files().front().alias : std::string_view(place.file);
    throw compile_error({message_at(sources_, file, place.line, token.text, too_large(what, given, limit))});
  }

  std::string_view before(size_t distance = 1) const { return at_ >= distance ? tokens_[at_ - distance].text : std::string_view(); }

  void take_word() {
    const std::string_view word = tokens_[at_].text;
    if (word == "case") expect(++cases_, kMaxCases, "cases");
    if (Frame& frame = frames_.back(); frame.is_struct)
      if (const auto known = structs_.find(word); known != structs_.end()) frame.type_members = known->second;
  }

  void take_sign(char sign) {
    switch (sign) {
      case '(':
        return open({.is_list = at_ > 0 && (tokens_[at_ - 1].kind == TokenKind::word || before() == "]")});
      case '[':
        return open({});
      case '{':
        return open_brace();
      case ')':
      case ']':
        return close();
      case '}':
        return close_brace();
      case ';':
        end_member();
        return restart();
      case ',':
        end_member(true);
        if (frames_.back().is_list) return restart();
        break;
      default:
        break;
    }
    ++frames_.back().operators;
    ++depth_;
  }

  void open(Frame frame) {
    ++frames_.back().operators;
    depth_ += 2;
    frames_.push_back(frame);
  }

  void open_brace() {
    const bool values = before() == "=" || before() == "," || before() == "(" || (before() == "{" && frames_.back().is_list);
    if (before() == ")" && frames_.size() == 1) expect(++functions_, kMaxFunctions, "functions");
    Frame frame{.is_list = values};
    if (before(2) == "struct") frame.is_struct = true, frame.name = before();
    if (frames_.size() == 1 && before() != ")" && !values && !frame.is_struct) expect(++blocks_, kMaxBlocks, "blocks");
    open(frame);
  }

  void close() {
    if (frames_.size() < 2) return;
    depth_ -= frames_.back().operators + 1;
    frames_.pop_back();
  }

  void close_brace() {
    const Frame frame = frames_.back();
    close();
    if (frame.is_struct) structs_[frame.name] = frame.members;
    if (!frames_.back().is_list) restart();
  }

  // Starts the next statement or element and resets its operator count.
  void restart() {
    depth_ -= frames_.back().operators;
    frames_.back().operators = 0;
  }

  void end_member(bool type_stays = false) {
    Frame& frame = frames_.back();
    if (!frame.is_struct) return;
    frame.members += frame.type_members;
    if (!type_stays) frame.type_members = 1;
    expect(frame.members, kMaxStructMembers, "members of a structure");
  }

  std::string_view text_;
  const SourceSet& sources_;
  Tokens tokens_;
  size_t at_ = 0, depth_ = 0;
  double cases_ = 0, functions_ = 0, blocks_ = 0;
  std::vector<Frame> frames_;
  std::unordered_map<std::string_view, double> structs_;
};

// Nesting of brackets and chained operators in source and in macro definitions. Commas count as operators.
struct Nesting {
  size_t text = 0, macro = 0;

  void add(const Tokens& tokens) {
    for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
      while (end < tokens.size() && tokens[end].directive == tokens[begin].directive) ++end;
      size_t& deepest = tokens[begin].directive == 0 ? text : macro;
      deepest = std::max(deepest, measure(tokens, begin, end));
    }
  }

 private:
  static size_t measure(const Tokens& tokens, size_t begin, size_t end) {
    std::vector<size_t> operators{0};  // one count per open bracket
    size_t depth = 0, deepest = 0;
    const auto restart = [&] { depth -= std::exchange(operators.back(), 0); };
    for (size_t i = begin; i < end; ++i) {
      if (tokens[i].kind != TokenKind::punctuation) continue;
      const char sign = tokens[i].text.front();
      const bool closes = sign == ')' || sign == ']' || sign == '}';
      if (closes && operators.size() > 1) {
        restart();
        operators.pop_back();
        --depth;
      }
      if (sign == ';' || sign == '}') restart();
      if (closes || sign == ';') continue;
      ++operators.back();
      ++depth;
      if (sign == '(' || sign == '[' || sign == '{') operators.push_back(0), ++depth;
      deepest = std::max(deepest, depth);
    }
    return deepest;
  }
};

// Returns whether structures may be nested. Their final size is only known after macro expansion.
bool has_structures(const std::vector<Tokens>& texts) {
  size_t count = 0;
  for (const auto& tokens : texts)
    for (const auto& token : tokens)
      if (token.kind == TokenKind::word && token.text == "struct") count += token.directive != 0 ? 3 : 1;
  return count > 2;
}

// Returns the token count of a text after macro expansion.
double token_count(const MacroGrowth& macros, const Growth& growth, const Tokens& tokens, size_t limit) {
  if (!macros.pastes() || growth.base > static_cast<double>(limit)) return growth.base;
  return std::max(growth.base,
                  static_cast<double>(expanded_tokens(tokens.data(), tokens.data() + tokens.size(), macros.definitions(), limit)));
}

Tokens without_directives(const Tokens& tokens) {
  Tokens kept;
  std::ranges::copy_if(tokens, std::back_inserter(kept), [](const Token& token) { return token.directive == 0; });
  return kept;
}

ShaderCompileError refused(const SourceSet& sources, const std::string& text) {
  return compile_error({sources.files().front().name + ": " + text});
}

}  // namespace

TextSize check_size(const SourceSet& sources, const ShaderHead& head) {
  size_t bytes = 0;
  for (const auto& file : sources.files()) bytes += file.text.size();
  if (bytes > kMaxSourceBytes) throw refused(sources, too_large("bytes of source", static_cast<double>(bytes), kMaxSourceBytes));
  std::vector<Tokens> texts{tokenize(head.version_and_preamble), tokenize(head.macros)};  // views into the sources
  for (const auto& file : sources.files()) texts.push_back(tokenize(file.text));
  MacroGrowth macros;
  for (const auto& tokens : texts) macros.add(tokens);
  double total = 0;
  size_t macro_depth = 0;
  for (size_t i = 2; i < texts.size(); ++i) {
    const Growth growth = macros.of(texts[i].data(), texts[i].data() + texts[i].size());
    if (growth.depth > kMaxMacroDepth)
      throw refused(sources, "macros and their arguments nest deeper than " + std::to_string(kMaxMacroDepth));
    macro_depth = std::max(macro_depth, growth.depth);
    total += token_count(macros, growth, macros.pastes() ? without_directives(texts[i]) : Tokens{}, kMaxTokens);
    for (const char* condition : {"if", "elif"})
      for (const auto& line : directives(texts[i], condition)) {
        const double tokens = token_count(macros, macros.of(line.data(), line.data() + line.size()), line, kMaxSourceDepth);
        if (tokens > kMaxSourceDepth) throw refused(sources, too_large("tokens of a condition, macros expanded", tokens, kMaxSourceDepth));
      }
  }
  if (total > kMaxTokens) throw refused(sources, too_large("tokens, macros expanded", total, kMaxTokens));
  // Each nested macro adds its own nesting, whether nested by its arguments or by its body.
  Nesting deepest;
  for (const auto& tokens : texts) deepest.add(tokens);
  const auto depth = static_cast<double>(deepest.text + macro_depth * deepest.macro);
  const double most = macros.pastes() ? total : std::min(depth, total);
  const double head_depth = static_cast<double>(deepest.text);  // the preamble is not included in `total`
  return {total > kMaxSourceDepth || has_structures(texts), static_cast<size_t>(std::min<double>(most + head_depth, kMaxSourceDepth))};
}

void check_parts(std::string_view preprocessed, const SourceSet& sources) {
  Parts(preprocessed, sources).check();
}

}  // namespace pumice
