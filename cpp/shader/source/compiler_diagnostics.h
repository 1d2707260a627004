// Translates compiler messages to the user's source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "shader/source/source_set.h"

namespace pumice {

struct Diagnostics {
  std::vector<std::string> errors, warnings;
};

// Rewrites the messages of a log. A position "alias:line" becomes "file:line:column: text", followed by the source line and a caret.
Diagnostics parse_compiler_log(std::string_view log, const SourceSet& sources);

// Formats one message at a token in line `line` of `file`, both as the compiler reports them (an alias or a name from #line).
std::string format_message_at(const SourceSet& sources, std::string_view file, size_t line, std::string_view token, std::string_view text);

// Returns the user's name for a file from the compiler's name.
std::string get_display_name(const SourceSet& sources, std::string_view file);

// Replaces bytes that are not valid UTF-8, and control characters other than tab and newline, with '?'.
std::string sanitize_text(std::string text);

ShaderCompileError make_compile_error(std::vector<std::string> messages);

}  // namespace pumice
