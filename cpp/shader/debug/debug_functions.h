// GLSL added to a debugged shader: the ring buffer, the functions that replace printf calls, and the bounds checks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/debug/print_format.h"

namespace pumice {

// A printf call becomes a call to kPrintFunction + its index. Its arguments go through kArgumentFunction + "call_argument" and
// word_converter_name(), so that the compiler's message names an argument of the wrong type.
inline constexpr std::string_view kArgumentFunction = "pumice_argument_", kPrintFunction = "pumice_print_";
std::string word_converter_name(const Conversion& conversion);

// Returns the functions for preprocessed source with these printf calls.
std::string make_debug_functions(std::string_view preprocessed, const std::vector<PrintFormat>& formats, bool check_bounds);

}  // namespace pumice
