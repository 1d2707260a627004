#include "shader/source/macro_expansion.h"

#include <algorithm>
#include <deque>
#include <string>

namespace pumice {
namespace {

// A token, or the end of a macro's expansion, after which its name may expand again.
struct MacroToken {
  std::string_view text;
  bool is_word = false, ends_macro = false;
};
using MacroTokens = std::vector<MacroToken>;

bool is_paste_operator(const Token* at, const Token* end) {
  return end - at > 1 && at[0].text == "#" && at[1].text == "#" && at[1].offset == at[0].offset + 1;
}

// Expands the macros of one text and counts the tokens.
class MacroExpander {
 public:
  MacroExpander(const MacroDefinitions& macros, size_t limit) : macros_(macros), limit_(limit) {}

  size_t token_count() const { return count_; }

  MacroTokens expand_tokens(MacroTokens input) {
    MacroTokens output;
    if (++depth_ > kMaxMacroDepth) count_ = limit_ + 1;
    std::ranges::reverse(input);  // used as a stack: the next token is the last
    while (!input.empty() && count_ <= limit_) {
      const MacroToken item = pop_token(input);
      if (item.ends_macro) continue;
      ++count_;
      if (!expand_macro(item, input)) output.push_back(item);
    }
    while (!input.empty()) pop_token(input);
    --depth_;
    return output;
  }

 private:
  MacroToken pop_token(MacroTokens& input) {
    const MacroToken item = input.back();
    input.pop_back();
    if (item.ends_macro) --active_[item.text];
    return item;
  }

  // Pushes the expansion of a macro name onto the input; returns false if the name is not expanded.
  bool expand_macro(const MacroToken& name, MacroTokens& input) {
    const auto found = name.is_word ? macros_.find(name.text) : macros_.end();
    if (found == macros_.end() || active_[name.text] > 0) return false;
    const auto& definitions = found->second;
    std::vector<MacroTokens> arguments;
    if (std::ranges::any_of(definitions, &Macro::is_function)) {
      while (!input.empty() && input.back().ends_macro) pop_token(input);
      if (!input.empty() && input.back().text == "(") arguments = parse_arguments(input);
      if (arguments.empty() && std::ranges::all_of(definitions, &Macro::is_function)) return false;
    }
    std::vector<MacroTokens> expanded;
    for (const auto& argument : arguments) expanded.push_back(expand_tokens(argument));
    MacroTokens text;
    for (const auto& macro : definitions)
      if (!macro.is_function || !arguments.empty()) substitute(macro, arguments, expanded, text);
    ++active_[name.text];
    input.push_back({name.text, true, true});
    input.insert(input.end(), text.rbegin(), text.rend());
    return true;
  }

  // Removes a call's arguments and brackets from the input. An unclosed bracket ends with the source.
  std::vector<MacroTokens> parse_arguments(MacroTokens& input) {
    std::vector<MacroTokens> arguments(1);
    size_t nesting = 0;
    pop_token(input);
    while (!input.empty()) {
      const MacroToken item = pop_token(input);
      if (item.ends_macro) continue;
      if (item.text == ")" && nesting == 0) break;
      if (item.text == "," && nesting == 0) {
        arguments.emplace_back();
        continue;
      }
      if (item.text == "(") ++nesting;
      if (item.text == ")") --nesting;
      arguments.back().push_back(item);
    }
    return arguments;
  }

  void substitute(const Macro& macro, const std::vector<MacroTokens>& arguments, const std::vector<MacroTokens>& expanded,
                  MacroTokens& text) {
    bool is_pasting = false;
    for (const Token* at = macro.begin; at < macro.end && count_ <= limit_; ++at) {
      if (is_paste_operator(at, macro.end)) {
        is_pasting = true, ++at;
        continue;
      }
      const bool is_raw = is_pasting || is_paste_operator(at + 1, macro.end);
      const auto parameter = static_cast<size_t>(std::ranges::find(macro.parameters, at->text) - macro.parameters.begin());
      const bool is_parameter = parameter < macro.parameters.size();
      const MacroTokens token{{at->text, at->kind == TokenKind::word}}, none;
      const MacroTokens& replacement = !is_parameter                   ? token
                                       : parameter >= arguments.size() ? none
                                       : is_raw                        ? arguments[parameter]
                                                                       : expanded[parameter];
      auto first = replacement.begin();
      if (is_pasting && !text.empty() && first != replacement.end()) text.back() = paste_tokens(text.back(), *first++);
      text.insert(text.end(), first, replacement.end());
      if (text.size() > limit_) count_ = limit_ + 1;
      is_pasting = false;
    }
  }

  MacroToken paste_tokens(const MacroToken& left, const MacroToken& right) {
    pasted_names_.push_back(std::string(left.text) + std::string(right.text));
    if (pasted_names_.back().size() > kMaxName) count_ = limit_ + 1;
    return {pasted_names_.back(), left.is_word};
  }

  static constexpr size_t kMaxName = 1024;  // maximum number of characters of a pasted name: glslang's limit

  const MacroDefinitions& macros_;
  size_t limit_, count_ = 0, depth_ = 0;
  std::unordered_map<std::string_view, size_t> active_;  // number of active expansions of each name: a macro is not expanded within itself
  std::deque<std::string> pasted_names_;                 // storage of pasted tokens
};

}  // namespace

size_t count_expanded_tokens(const Token* begin, const Token* end, const MacroDefinitions& macros, size_t limit) {
  MacroExpander expander(macros, limit);
  MacroTokens text;
  for (const Token* at = begin; at < end; ++at) text.push_back({at->text, at->kind == TokenKind::word});
  expander.expand_tokens(std::move(text));
  return expander.token_count();
}

}  // namespace pumice
