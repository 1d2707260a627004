// GLSL added to a debugged shader: the ring buffer, the functions that replace printf calls, and the bounds checks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_metadata.h"
#include "shader/debug/printf_format.h"

namespace pumice {

// A printf call becomes a call to kPrintFunction + its index. Arguments are wrapped in kArgumentFunction + "<call>_<argument>" and
// get_word_converter_name(), so that the compiler's message names an argument of the wrong type.
inline constexpr std::string_view kArgumentFunction = "pumice_argument_", kPrintFunction = "pumice_print_";
std::string get_word_converter_name(const ConversionSpecifier& conversion);

// Returns the GLSL functions to add to preprocessed source with these printf calls.
std::string make_debug_functions(std::string_view preprocessed, const std::vector<PrintfFormat>& formats, bool check_bounds);

}  // namespace pumice
