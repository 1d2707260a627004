// Real numbers as text and back, whatever the locale of the process is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pumice {

// The number as printf writes it with %.<digits>g and with %.<digits>e in the C locale.
std::string general_text(double value, int digits = 6);
std::string scientific_text(double value, int digits);
// A finite number as general_text() writes it, always with a point or an exponent, so that it reads as a real number.
std::string real_text(double value, int digits);
// The real number that a text is; none where the text is no number, or more than that.
std::optional<double> parsed_number(std::string_view text);

}  // namespace pumice
