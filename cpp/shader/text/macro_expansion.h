// Expands macros as the preprocessor does, to count what comes of them: names that are pasted together are known only then.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shader/text/tokens.h"

namespace pumice {

inline constexpr size_t kMaxMacroDepth = 500;  // macros in macros and calls in their arguments

struct Macro {
  bool is_function = false;
  std::vector<std::string_view> parameters;
  const Token* begin = nullptr;  // the body
  const Token* end = nullptr;
};

using MacroDefinitions = std::unordered_map<std::string_view, std::vector<Macro>>;

// The number of tokens that the text becomes, or more than `limit` where there are more. All definitions of a macro count, since conditions
// are not evaluated.
size_t expanded_tokens(const Token* begin, const Token* end, const MacroDefinitions& macros, size_t limit);

}  // namespace pumice
