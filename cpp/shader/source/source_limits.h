// Limits on source size and nesting. glslang has no limits and recurses per nesting level, so hostile source could overflow the stack.
#pragma once

#include <cstddef>
#include <string_view>

#include "shader/source/shader_prefix.h"
#include "shader/source/source_set.h"

namespace pumice {

inline constexpr size_t kMaxSourceBytes = size_t{16} << 20;  // limit for all files together
inline constexpr size_t kMaxTokens = 400'000;                // limit after macro expansion: a few seconds of work
inline constexpr size_t kMaxSourceDepth = 20'000;            // brackets and chained operators; fits the stack of the compiling thread
inline constexpr size_t kMaxStructMembers = 65'536;          // counts members of nested structures
inline constexpr size_t kMaxFunctions = 4'096;               // limited because glslang compares every pair
inline constexpr size_t kMaxCases = 4'096;
inline constexpr size_t kMaxBlocks = 4'096;

// Upper bounds for source with its macros expanded.
struct SourceSize {
  bool may_be_deep = false;  // requires check_nesting(); most sources are too short to nest too deeply
  size_t depth = 0;          // upper bound for the nesting of brackets and chained operators
};

// Estimates the size of a source. Throws ShaderCompileError if it is too large, before or after macro expansion.
SourceSize check_source_size(const SourceSet& sources, const ShaderPrefix& prefix);

// Checks preprocessed source. Throws ShaderCompileError for excessive nesting, or too many structure members, functions, cases or
// blocks.
void check_nesting(std::string_view preprocessed, const SourceSet& sources);

}  // namespace pumice
