// The compiler's messages in terms of the user's own text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "shader/text/source_set.h"

namespace pumice {

struct Diagnostics {
  std::vector<std::string> errors, warnings;
};

// Rewrites the messages of a log, whose positions are "alias:line": each becomes "file:line:column: text", the line and a caret.
Diagnostics parse_log(std::string_view log, const SourceSet& sources);

// One message at a token of the text that the compiler reports as line `line` of `file` (an alias or a name that a #line gave).
std::string message_at(const SourceSet& sources, std::string_view file, size_t line, std::string_view token, std::string_view text);

// A file as the user knows it, of the name that the compiler uses.
std::string shown_name(const SourceSet& sources, std::string_view file);

// The text with '?' in place of bytes that are no UTF-8 character, or a control character other than tab and new line.
std::string whole_characters(std::string text);

ShaderCompileError compile_error(std::vector<std::string> messages);

}  // namespace pumice
