// Expands macros like the preprocessor to count the resulting tokens; pasted names are only known after expansion.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shader/source/glsl_tokens.h"

namespace pumice {

inline constexpr size_t kMaxMacroDepth = 500;  // maximum nesting of macros, and of macro calls in their arguments

struct Macro {
  bool is_function = false;
  std::vector<std::string_view> parameters;
  const Token* begin = nullptr;  // tokens of the body
  const Token* end = nullptr;
};

using MacroDefinitions = std::unordered_map<std::string_view, std::vector<Macro>>;

// Returns the number of tokens after expansion, or more than `limit`. All definitions of a macro count, because conditions are not
// evaluated.
size_t count_expanded_tokens(const Token* begin, const Token* end, const MacroDefinitions& macros, size_t limit);

}  // namespace pumice
