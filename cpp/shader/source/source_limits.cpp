#include "shader/source/source_limits.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shader/source/compiler_diagnostics.h"
#include "shader/source/glsl_tokens.h"
#include "shader/source/macro_expansion.h"

namespace pumice {
namespace {

using Tokens = std::vector<Token>;

// Token count of an expanded text or macro: a base, plus a factor per argument token. Doubles are used because they do not wrap around.
struct ExpandedSize {
  double base = 0;
  std::vector<double> per_argument;
  size_t depth = 0;  // nesting depth of macros
};

std::string format_limit_message(std::string_view quantity, double value, size_t limit) {
  const std::string count = value < 1e15 ? std::to_string(static_cast<uint64_t>(value)) : "more than 10^15";
  return std::string(quantity) + ": given " + count + ", the limit is " + std::to_string(limit);
}

// Bounds the size of macro expansions without expanding them, except for pasted names. Conditions are ignored: if a macro has several
// definitions, the largest counts.
class MacroSizeEstimator {
 public:
  // The file's tokens must outlive this object.
  void add_definitions(const Tokens& tokens) {
    for (size_t i = 0; i + 2 < tokens.size(); ++i) {
      if (tokens[i].directive == 0 || tokens[i].text != "#" || tokens[i + 1].text != "define") continue;
      if (tokens[i + 1].directive == tokens[i].directive && tokens[i + 2].directive == tokens[i].directive) add_definition(tokens, i + 2);
    }
  }

  const MacroDefinitions& definitions() const { return macros_; }
  bool has_token_pasting() const { return has_token_pasting_; }

  ExpandedSize estimate_expanded_size(const Token* begin, const Token* end, const std::vector<std::string_view>& parameters = {}) {
    ExpandedSize sum;
    sum.per_argument.resize(parameters.size());
    const MacroDepthScope level(depth_);
    if (depth_ > kMaxMacroDepth) {
      sum.depth = depth_;
      return sum;
    }
    for (const Token* at = begin; at < end;) at = add_token(sum, at, end, parameters);
    return sum;
  }

 private:
  struct MacroDepthScope {
    explicit MacroDepthScope(size_t& depth) : depth_(depth) { ++depth_; }
    ~MacroDepthScope() { --depth_; }
    size_t& depth_;
  };

  void add_definition(const Tokens& tokens, size_t name) {
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
      has_token_pasting_ = has_token_pasting_ || (token->text == "#" && token + 1 < macro.end && token[1].text == "#");
    for (const auto& parameter : macro.parameters)
      max_parameter_uses_ =
          std::max(max_parameter_uses_,
                   static_cast<double>(std::count_if(macro.begin, macro.end, [&](const Token& token) { return token.text == parameter; })));
    macros_[tokens[name].text].push_back(std::move(macro));
  }

  const Token* add_token(ExpandedSize& sum, const Token* at, const Token* end, const std::vector<std::string_view>& parameters) {
    sum.base += 1;
    const auto parameter = std::ranges::find(parameters, at->text);
    if (parameter != parameters.end()) {
      sum.per_argument[static_cast<size_t>(parameter - parameters.begin())] += 1;
      return add_call(sum, at + 1, end, parameters, nullptr);
    }
    const ExpandedSize* macro = at->kind == TokenKind::word ? find_macro_size(at->text) : nullptr;
    if (!macro) return at + 1;
    sum.base += macro->base;
    sum.depth = std::max(sum.depth, macro->depth + 1);
    return add_call(sum, at + 1, end, parameters, macro);
  }

  // Adds the bracketed arguments after a macro's name. `macro` is null for a parameter or a name that may end in a macro; the largest
  // factor then counts.
  const Token* add_call(ExpandedSize& sum, const Token* at, const Token* end, const std::vector<std::string_view>& parameters,
                        const ExpandedSize* macro) {
    if (at == end || at->text != "(") return at;
    const Token* argument = at + 1;
    size_t nesting = 0, index = 0;
    for (const Token* last = argument; last < end; ++last) {
      if (last->text == "(") ++nesting;
      const bool closes = last->text == ")" && nesting == 0;
      if (closes || (last->text == "," && nesting == 0)) {
        const bool is_known = macro && index < macro->per_argument.size();
        add_argument(sum, estimate_expanded_size(argument, last, parameters), is_known ? macro->per_argument[index] : max_parameter_uses_);
        argument = last + 1;
        ++index;
      }
      if (closes) return last + 1;
      if (last->text == ")") --nesting;
    }
    return at;
  }

  static void add_argument(ExpandedSize& sum, const ExpandedSize& argument, double factor) {
    factor = std::max(factor, 1.0);
    sum.base += factor * argument.base;
    for (size_t i = 0; i < argument.per_argument.size(); ++i) sum.per_argument[i] += factor * argument.per_argument[i];
    sum.depth = std::max(sum.depth, argument.depth + 1);
  }

  const ExpandedSize* find_macro_size(std::string_view name) {
    const auto definitions = macros_.find(name);
    if (definitions == macros_.end()) return nullptr;
    const auto [entry, is_new] = sizes_.try_emplace(name);  // zero until it is computed, since a macro is not expanded within itself
    if (!is_new) return &entry->second;
    ExpandedSize largest;
    for (const auto& macro : definitions->second) {
      const ExpandedSize expansion = estimate_expanded_size(macro.begin, macro.end, macro.parameters);
      largest.base = std::max(largest.base, expansion.base);
      largest.depth = std::max(largest.depth, expansion.depth);
      largest.per_argument.resize(std::max(largest.per_argument.size(), expansion.per_argument.size()));
      for (size_t i = 0; i < expansion.per_argument.size(); ++i)
        largest.per_argument[i] = std::max(largest.per_argument[i], expansion.per_argument[i]);
    }
    return &(sizes_[name] = std::move(largest));
  }

  MacroDefinitions macros_;
  bool has_token_pasting_ = false;
  std::unordered_map<std::string_view, ExpandedSize> sizes_;
  double max_parameter_uses_ = 1;  // maximum number of uses of a parameter in one macro
  size_t depth_ = 0;
};

// Checks nesting depth and counts in preprocessed source.
class NestingChecker {
 public:
  NestingChecker(std::string_view text, const SourceSet& sources) : text_(text), sources_(sources), tokens_(tokenize(text)) {}

  void check() {
    frames_.push_back({});
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      if (tokens_[at_].directive != 0) continue;
      if (tokens_[at_].kind == TokenKind::word)
        visit_word();
      else if (tokens_[at_].kind == TokenKind::punctuation)
        visit_punctuation(tokens_[at_].text.front());
      check_limit(static_cast<double>(depth_), kMaxSourceDepth, "nested brackets and operators");
    }
  }

 private:
  // An open bracket: the operators in its current element, and whether commas separate elements.
  struct Bracket {
    size_t operators = 0;
    bool is_list = false;
    bool is_struct = false;
    std::string_view name;  // structure name
    double type_members = 1, members = 0;
  };

  void check_limit(double value, size_t limit, std::string_view quantity) const {
    if (value <= static_cast<double>(limit)) return;
    const auto lines = map_source_lines(text_);
    const Token& token = tokens_.at(at_);
    const SourceLine location = lines.at(token.line - 1);
    const std::string_view file = location.file.empty() ? sources_.files().front().alias : std::string_view(location.file);
    throw make_compile_error({format_message_at(sources_, file, location.line, token.text, format_limit_message(quantity, value, limit))});
  }

  std::string_view get_previous_token(size_t distance = 1) const {
    return at_ >= distance ? tokens_[at_ - distance].text : std::string_view();
  }

  void visit_word() {
    const std::string_view word = tokens_[at_].text;
    if (word == "case") check_limit(++cases_, kMaxCases, "cases");
    if (Bracket& bracket = frames_.back(); bracket.is_struct)
      if (const auto found = structs_.find(word); found != structs_.end()) bracket.type_members = found->second;
  }

  void visit_punctuation(char sign) {
    switch (sign) {
      case '(':
        return open_bracket({.is_list = at_ > 0 && (tokens_[at_ - 1].kind == TokenKind::word || get_previous_token() == "]")});
      case '[':
        return open_bracket({});
      case '{':
        return open_brace();
      case ')':
      case ']':
        return close_bracket();
      case '}':
        return close_brace();
      case ';':
        end_member();
        return reset_operators();
      case ',':
        end_member(true);
        if (frames_.back().is_list) return reset_operators();
        break;
      default:
        break;
    }
    ++frames_.back().operators;
    ++depth_;
  }

  void open_bracket(Bracket bracket) {
    ++frames_.back().operators;
    depth_ += 2;
    frames_.push_back(bracket);
  }

  void open_brace() {
    const bool is_initializer = get_previous_token() == "=" || get_previous_token() == "," || get_previous_token() == "(" ||
                                (get_previous_token() == "{" && frames_.back().is_list);
    if (get_previous_token() == ")" && frames_.size() == 1) check_limit(++functions_, kMaxFunctions, "functions");
    Bracket bracket{.is_list = is_initializer};
    if (get_previous_token(2) == "struct") bracket.is_struct = true, bracket.name = get_previous_token();
    if (frames_.size() == 1 && get_previous_token() != ")" && !is_initializer && !bracket.is_struct)
      check_limit(++blocks_, kMaxBlocks, "blocks");
    open_bracket(bracket);
  }

  void close_bracket() {
    if (frames_.size() < 2) return;
    depth_ -= frames_.back().operators + 1;
    frames_.pop_back();
  }

  void close_brace() {
    const Bracket bracket = frames_.back();
    close_bracket();
    if (bracket.is_struct) structs_[bracket.name] = bracket.members;
    if (!frames_.back().is_list) reset_operators();
  }

  // Starts the next statement or element and resets its operator count.
  void reset_operators() {
    depth_ -= frames_.back().operators;
    frames_.back().operators = 0;
  }

  void end_member(bool type_stays = false) {
    Bracket& bracket = frames_.back();
    if (!bracket.is_struct) return;
    bracket.members += bracket.type_members;
    if (!type_stays) bracket.type_members = 1;
    check_limit(bracket.members, kMaxStructMembers, "members of a structure");
  }

  std::string_view text_;
  const SourceSet& sources_;
  Tokens tokens_;
  size_t at_ = 0, depth_ = 0;
  double cases_ = 0, functions_ = 0, blocks_ = 0;
  std::vector<Bracket> frames_;
  std::unordered_map<std::string_view, double> structs_;
};

// Nesting depths of brackets and chained operators in source and in macro definitions. Commas count as operators.
struct NestingDepths {
  size_t text = 0, macro = 0;

  void add_tokens(const Tokens& tokens) {
    for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
      while (end < tokens.size() && tokens[end].directive == tokens[begin].directive) ++end;
      size_t& deepest = tokens[begin].directive == 0 ? text : macro;
      deepest = std::max(deepest, compute_nesting_depth(tokens, begin, end));
    }
  }

 private:
  static size_t compute_nesting_depth(const Tokens& tokens, size_t begin, size_t end) {
    std::vector<size_t> operators{0};  // one count per open bracket
    size_t depth = 0, deepest = 0;
    const auto reset_operators = [&] { depth -= std::exchange(operators.back(), 0); };
    for (size_t i = begin; i < end; ++i) {
      if (tokens[i].kind != TokenKind::punctuation) continue;
      const char sign = tokens[i].text.front();
      const bool closes = sign == ')' || sign == ']' || sign == '}';
      if (closes && operators.size() > 1) {
        reset_operators();
        operators.pop_back();
        --depth;
      }
      if (sign == ';' || sign == '}') reset_operators();
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
bool may_nest_structures(const std::vector<Tokens>& token_lists) {
  size_t count = 0;
  for (const auto& tokens : token_lists)
    for (const auto& token : tokens)
      if (token.kind == TokenKind::word && token.text == "struct") count += token.directive != 0 ? 3 : 1;
  return count > 2;
}

// Returns the token count of a text after macro expansion.
double count_tokens(const MacroSizeEstimator& macros, const ExpandedSize& expanded, const Tokens& tokens, size_t limit) {
  if (!macros.has_token_pasting() || expanded.base > static_cast<double>(limit)) return expanded.base;
  return std::max(expanded.base,
                  static_cast<double>(count_expanded_tokens(tokens.data(), tokens.data() + tokens.size(), macros.definitions(), limit)));
}

Tokens remove_directives(const Tokens& tokens) {
  Tokens result;
  std::ranges::copy_if(tokens, std::back_inserter(result), [](const Token& token) { return token.directive == 0; });
  return result;
}

ShaderCompileError make_limit_error(const SourceSet& sources, const std::string& text) {
  return make_compile_error({sources.files().front().name + ": " + text});
}

}  // namespace

SourceSize check_source_size(const SourceSet& sources, const ShaderPrefix& prefix) {
  size_t bytes = 0;
  for (const auto& file : sources.files()) bytes += file.text.size();
  if (bytes > kMaxSourceBytes)
    throw make_limit_error(sources, format_limit_message("bytes of source", static_cast<double>(bytes), kMaxSourceBytes));
  std::vector<Tokens> token_lists{tokenize(prefix.version_and_preamble), tokenize(prefix.macros)};  // views into the sources
  for (const auto& file : sources.files()) token_lists.push_back(tokenize(file.text));
  MacroSizeEstimator macros;
  for (const auto& tokens : token_lists) macros.add_definitions(tokens);
  double total = 0;
  size_t macro_depth = 0;
  for (size_t i = 2; i < token_lists.size(); ++i) {
    const ExpandedSize expanded = macros.estimate_expanded_size(token_lists[i].data(), token_lists[i].data() + token_lists[i].size());
    if (expanded.depth > kMaxMacroDepth)
      throw make_limit_error(sources, "macros and their arguments nest deeper than " + std::to_string(kMaxMacroDepth));
    macro_depth = std::max(macro_depth, expanded.depth);
    total += count_tokens(macros, expanded, macros.has_token_pasting() ? remove_directives(token_lists[i]) : Tokens{}, kMaxTokens);
    for (const char* condition : {"if", "elif"})
      for (const auto& line : find_directives(token_lists[i], condition)) {
        const double tokens =
            count_tokens(macros, macros.estimate_expanded_size(line.data(), line.data() + line.size()), line, kMaxSourceDepth);
        if (tokens > kMaxSourceDepth)
          throw make_limit_error(sources, format_limit_message("tokens of a condition, macros expanded", tokens, kMaxSourceDepth));
      }
  }
  if (total > kMaxTokens) throw make_limit_error(sources, format_limit_message("tokens, macros expanded", total, kMaxTokens));
  // Each nested macro adds its own nesting depth, whether it occurs in an argument or in a macro body.
  NestingDepths max_nesting;
  for (const auto& tokens : token_lists) max_nesting.add_tokens(tokens);
  const auto depth = static_cast<double>(max_nesting.text + macro_depth * max_nesting.macro);
  const double max_depth = macros.has_token_pasting() ? total : std::min(depth, total);
  const double prefix_depth = static_cast<double>(max_nesting.text);  // the preamble is not included in `total`
  return {total > kMaxSourceDepth || may_nest_structures(token_lists),
          static_cast<size_t>(std::min<double>(max_depth + prefix_depth, kMaxSourceDepth))};
}

void check_nesting(std::string_view preprocessed, const SourceSet& sources) {
  NestingChecker(preprocessed, sources).check();
}

}  // namespace pumice
