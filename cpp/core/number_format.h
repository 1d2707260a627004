// Locale-independent conversion between real numbers and text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pumice {

// Formats like printf with %.<digits>g and %.<digits>e in the C locale.
std::string format_general(double value, int digits = 6);
std::string format_scientific(double value, int digits);
// format_general() of a finite number, always with a decimal point or an exponent so that it reads as a float.
std::string format_as_float(double value, int digits);
// Returns nullopt if the text is not exactly one number.
std::optional<double> parse_number(std::string_view text);

}  // namespace pumice
