// GLSL that a debugged shader gets: the ring, what printf calls become, the functions that check bounds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/debug/print_format.h"

namespace pumice {

// A call of printf becomes kPrintFunction + its number, of arguments that went through kArgumentFunction + "number_argument" and
// words_function(): the compiler names the argument that does not fit.
inline constexpr std::string_view kArgumentFunction = "pumice_argument_", kPrintFunction = "pumice_print_";
std::string words_function(const Conversion& conversion);

// For a text that is preprocessed and has these calls.
std::string debug_functions(std::string_view preprocessed, const std::vector<PrintFormat>& formats, bool check_bounds);

}  // namespace pumice
