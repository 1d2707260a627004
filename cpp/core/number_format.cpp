#include "core/number_format.h"

#include <array>
#include <charconv>
#include <system_error>

namespace pumice {
namespace {

std::string format_number(double value, std::chars_format format, int digits) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, format, digits);
  return {text.data(), error == std::errc{} ? end : text.data()};
}

}  // namespace

std::string format_general(double value, int digits) {
  return format_number(value, std::chars_format::general, digits);
}

std::string format_scientific(double value, int digits) {
  return format_number(value, std::chars_format::scientific, digits);
}

std::string format_as_float(double value, int digits) {
  const std::string text = format_general(value, digits);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace pumice
