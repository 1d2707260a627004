#include "core/number_format.h"

#include <array>
#include <charconv>
#include <system_error>

namespace pumice {
namespace {

std::string text_of(double value, std::chars_format format, int digits) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, format, digits);
  return {text.data(), error == std::errc{} ? end : text.data()};
}

}  // namespace

std::string general_text(double value, int digits) {
  return text_of(value, std::chars_format::general, digits);
}

std::string scientific_text(double value, int digits) {
  return text_of(value, std::chars_format::scientific, digits);
}

std::string real_text(double value, int digits) {
  const std::string text = general_text(value, digits);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::optional<double> parsed_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace pumice
