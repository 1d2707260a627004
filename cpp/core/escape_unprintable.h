// Escapes text for terminals and log files: names in a model file may contain control characters.
#pragma once

#include <string>
#include <string_view>

namespace pumice {

enum class LineBreaks { escape, keep };

// Escapes characters that move the cursor, reorder text or are invisible, in Python's notation ("\x1b", "\u202e"): C0 and C1 controls, DEL,
// bidirectional and zero-width formatting, line separators, and bytes that are not UTF-8. LineBreaks::keep preserves "\n" and "\t".
std::string escape_unprintable(std::string_view text, LineBreaks lines = LineBreaks::escape);

}  // namespace pumice
