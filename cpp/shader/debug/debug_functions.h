// GLSL that a debugged shader gets: the ring, what printf calls become, the functions that check bounds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shader/debug/debug_table.h"
#include "shader/debug/print_format.h"

namespace pumice {

// A call of printf becomes a call of kPrintFunction + its number, with arguments that go through kArgumentFunction + "number_argument" and
// words_function(): so the compiler names an argument that does not fit.
inline constexpr std::string_view kArgumentFunction = "pumice_argument_", kPrintFunction = "pumice_print_";
std::string words_function(const Conversion& conversion);

// The functions for a preprocessed text that has these calls.
std::string debug_functions(std::string_view preprocessed, const std::vector<PrintFormat>& formats, bool check_bounds);

}  // namespace pumice
