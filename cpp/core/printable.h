// Text for terminals and log files: names from a model's file may hold control characters.
#pragma once

#include <string>
#include <string_view>

namespace pumice {

enum class Lines { escape, keep };

// Escapes what moves a terminal's cursor, reorders text or is invisible, as Python writes it ("\x1b", "\u202e"): C0 and C1 controls, DEL,
// bidirectional and zero-width formatting, line separators, and bytes that are not UTF-8. Lines::keep leaves "\n" and "\t" as they are.
std::string printable(std::string_view text, Lines lines = Lines::escape);

}  // namespace pumice
