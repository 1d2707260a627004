// Limits on the size and nesting of a text. glslang has none and recurses once per nesting level, so that a hostile text would overflow
// the stack.
#pragma once

#include <cstddef>
#include <string_view>

#include "shader/text/shader_head.h"
#include "shader/text/source_set.h"

namespace pumice {

inline constexpr size_t kMaxSourceBytes = size_t{16} << 20;  // bytes of all files
inline constexpr size_t kMaxTokens = 400'000;                // macros expanded: some seconds of work
inline constexpr size_t kMaxSourceDepth = 20'000;            // brackets and chained operators; the compiling thread's stack has room
inline constexpr size_t kMaxStructMembers = 65'536;          // members of a structure, those of its members included
inline constexpr size_t kMaxFunctions = 4'096;               // glslang compares each of these with all others
inline constexpr size_t kMaxCases = 4'096;
inline constexpr size_t kMaxBlocks = 4'096;

// An upper bound on a text with its macros expanded.
struct TextSize {
  bool may_be_deep = false;  // its parts have to be checked too; most texts are so short that nothing in them can nest too deeply
  size_t depth = 0;          // at most, of brackets and chained operators
};

// Estimates the size of a text. Throws ShaderCompileError where it is too large itself, or would be with its macros expanded.
TextSize check_size(const SourceSet& sources, const ShaderHead& head);

// Checks a preprocessed text. Throws ShaderCompileError where it nests too deeply or has too many parts.
void check_parts(std::string_view preprocessed, const SourceSet& sources);

}  // namespace pumice
