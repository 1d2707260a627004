#include "shader/source/macro_expansion.h"

#include <algorithm>
#include <deque>
#include <string>

namespace pumice {
namespace {

// A token, or the end of a macro's expansion, after which its name may expand again.
struct Item {
  std::string_view text;
  bool is_word = false, ends_macro = false;
};
using Items = std::vector<Item>;

bool is_paste(const Token* at, const Token* end) {
  return end - at > 1 && at[0].text == "#" && at[1].text == "#" && at[1].offset == at[0].offset + 1;
}

// Expands the macros of one text and counts the tokens.
class Expansion {
 public:
  Expansion(const MacroDefinitions& macros, size_t limit) : macros_(macros), limit_(limit) {}

  size_t count() const { return count_; }

  Items run(Items input) {
    Items output;
    if (++depth_ > kMaxMacroDepth) count_ = limit_ + 1;
    std::ranges::reverse(input);  // used as a stack: the next token is the last
    while (!input.empty() && count_ <= limit_) {
      const Item item = take(input);
      if (item.ends_macro) continue;
      ++count_;
      if (!expand(item, input)) output.push_back(item);
    }
    while (!input.empty()) take(input);
    --depth_;
    return output;
  }

 private:
  Item take(Items& input) {
    const Item item = input.back();
    input.pop_back();
    if (item.ends_macro) --busy_[item.text];
    return item;
  }

  // Replaces a name with its expansion; returns false if it is not expanded.
  bool expand(const Item& name, Items& input) {
    const auto found = name.is_word ? macros_.find(name.text) : macros_.end();
    if (found == macros_.end() || busy_[name.text] > 0) return false;
    const auto& definitions = found->second;
    std::vector<Items> arguments;
    if (std::ranges::any_of(definitions, &Macro::is_function)) {
      while (!input.empty() && input.back().ends_macro) take(input);
      if (!input.empty() && input.back().text == "(") arguments = take_arguments(input);
      if (arguments.empty() && std::ranges::all_of(definitions, &Macro::is_function)) return false;
    }
    std::vector<Items> expanded;
    for (const auto& argument : arguments) expanded.push_back(run(argument));
    Items text;
    for (const auto& macro : definitions)
      if (!macro.is_function || !arguments.empty()) substitute(macro, arguments, expanded, text);
    ++busy_[name.text];
    input.push_back({name.text, true, true});
    input.insert(input.end(), text.rbegin(), text.rend());
    return true;
  }

  // Removes a call's arguments and brackets from the input. An unclosed bracket ends with the source.
  std::vector<Items> take_arguments(Items& input) {
    std::vector<Items> arguments(1);
    size_t nested = 0;
    take(input);
    while (!input.empty()) {
      const Item item = take(input);
      if (item.ends_macro) continue;
      if (item.text == ")" && nested == 0) break;
      if (item.text == "," && nested == 0) {
        arguments.emplace_back();
        continue;
      }
      if (item.text == "(") ++nested;
      if (item.text == ")") --nested;
      arguments.back().push_back(item);
    }
    return arguments;
  }

  void substitute(const Macro& macro, const std::vector<Items>& arguments, const std::vector<Items>& expanded, Items& text) {
    bool pastes = false;
    for (const Token* at = macro.begin; at < macro.end && count_ <= limit_; ++at) {
      if (is_paste(at, macro.end)) {
        pastes = true, ++at;
        continue;
      }
      const bool raw = pastes || is_paste(at + 1, macro.end);
      const auto parameter = static_cast<size_t>(std::ranges::find(macro.parameters, at->text) - macro.parameters.begin());
      const bool is_parameter = parameter < macro.parameters.size();
      const Items token{{at->text, at->kind == TokenKind::word}}, none;
      const Items& part = !is_parameter ? token : parameter >= arguments.size() ? none : raw ? arguments[parameter] : expanded[parameter];
      auto first = part.begin();
      if (pastes && !text.empty() && first != part.end()) text.back() = pasted(text.back(), *first++);
      text.insert(text.end(), first, part.end());
      if (text.size() > limit_) count_ = limit_ + 1;
      pastes = false;
    }
  }

  Item pasted(const Item& left, const Item& right) {
    texts_.push_back(std::string(left.text) + std::string(right.text));
    if (texts_.back().size() > kMaxName) count_ = limit_ + 1;
    return {texts_.back(), left.is_word};
  }

  static constexpr size_t kMaxName = 1024;  // maximum number of characters of a pasted name: glslang's limit

  const MacroDefinitions& macros_;
  size_t limit_, count_ = 0, depth_ = 0;
  std::unordered_map<std::string_view, size_t> busy_;  // number of active expansions of each name: a macro is not expanded within itself
  std::deque<std::string> texts_;                      // storage of pasted tokens
};

}  // namespace

size_t expanded_tokens(const Token* begin, const Token* end, const MacroDefinitions& macros, size_t limit) {
  Expansion expansion(macros, limit);
  Items text;
  for (const Token* at = begin; at < end; ++at) text.push_back({at->text, at->kind == TokenKind::word});
  expansion.run(std::move(text));
  return expansion.count();
}

}  // namespace pumice
