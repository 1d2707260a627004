// printf formats in shaders: %d %i %u %o %x %X %c %f %F %e %E %g %G %a %A with flags, width and precision; %ld etc. for 64 bits, %lf for
// double, %v3f for vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

struct ConversionSpecifier {
  size_t begin = 0, end = 0;  // byte range in the format string
  std::string modifiers;      // flags, width and precision
  char letter = 'd';
  bool is_64bit = false;  // the argument has 64 bits
  uint32_t num_components = 1;

  bool is_float() const { return std::string_view("fFeEgGaA").find(letter) != std::string_view::npos; }
  uint32_t num_words() const { return num_components * (is_64bit ? 2 : 1); }
  std::string describe_expected_type() const;  // "an integer", "a vector of 3 floats"
};

// Parses the conversion specifiers of a format. Throws Error if it is invalid.
std::vector<ConversionSpecifier> parse_conversions(std::string_view format);

// Returns the contents of a string literal with escapes resolved. Throws Error for an invalid escape.
std::string unescape_literal(std::string_view literal);

// Returns the number of words that the arguments of these conversions occupy.
uint32_t count_argument_words(const std::vector<ConversionSpecifier>& conversions);
std::string format_message(std::string_view format, const std::vector<ConversionSpecifier>& conversions, std::span<const uint32_t> words);

}  // namespace pumice
