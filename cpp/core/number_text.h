// Real numbers as text and back, whatever the locale of the process is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pumice {

// As printf's %.<digits>g and %.<digits>e in the C locale.
std::string general_text(double value, int digits = 6);
std::string scientific_text(double value, int digits);
// general_text() that reads as a real number, with a point or an exponent; of a finite one.
std::string real_text(double value, int digits);
// None where the text is no number, or more than that.
std::optional<double> parsed_number(std::string_view text);

}  // namespace pumice
