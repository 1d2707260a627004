#include "shader/debug/printf_format.h"

#include <locale.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "core/error.h"

namespace pumice {
namespace {

constexpr std::string_view kFlags = "-+ #0", kDigits = "0123456789";
constexpr size_t kMaxDigits = 3;  // maximum number of digits of a width or a precision

// Parses one conversion specifier, starting after its '%'.
class ConversionParser {
 public:
  ConversionParser(std::string_view format, size_t percent) : format_(format), at_(percent + 1) { result_.begin = percent; }

  ConversionSpecifier run() {
    consume_modifiers(kFlags, kFlags.size());
    consume_modifiers(kDigits, kMaxDigits);
    if (consume('.')) {
      result_.modifiers += '.';
      consume_modifiers(kDigits, kMaxDigits);
    }
    if (consume('v')) {
      if (at_ >= format_.size() || format_[at_] < '2' || format_[at_] > '4') throw_invalid("expected 2, 3 or 4 after %v");
      result_.num_components = static_cast<uint32_t>(format_[at_++] - '0');
    }
    result_.is_64bit = consume('l');
    if (at_ >= format_.size()) throw_invalid("a conversion without a letter");
    result_.letter = format_[at_++];
    if (!is_supported()) throw_invalid("expected one of diuoxXcfFeEgGaA");
    result_.end = at_;
    return result_;
  }

 private:
  bool consume(char symbol) {
    const bool matches = at_ < format_.size() && format_[at_] == symbol;
    at_ += matches ? 1 : 0;
    return matches;
  }

  void consume_modifiers(std::string_view characters, size_t max_count) {
    for (; max_count > 0 && at_ < format_.size() && characters.find(format_[at_]) != std::string_view::npos; --max_count)
      result_.modifiers += format_[at_++];
  }

  bool is_supported() const {
    if (result_.letter == 'c') return !result_.is_64bit;
    return result_.is_float() || std::string_view("diuoxX").find(result_.letter) != std::string_view::npos;
  }

  [[noreturn]] void throw_invalid(const std::string& reason) const {
    throw Error("the conversion '" + std::string(format_.substr(result_.begin, at_ - result_.begin)) + "': " + reason);
  }

  std::string_view format_;
  size_t at_;
  ConversionSpecifier result_;
};

// Switches this thread to the C locale for the lifetime of this object.
class CLocaleScope {
 public:
  CLocaleScope() : previous_locale_(uselocale(get_c_locale())) {}
  ~CLocaleScope() { uselocale(previous_locale_); }
  CLocaleScope(const CLocaleScope&) = delete;

 private:
  static locale_t get_c_locale() {
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
    return c_locale;
  }

  locale_t previous_locale_;
};

template <typename T>
std::string format_value(const std::string& conversion, T value) {
  const CLocaleScope scope;
  const int length = std::snprintf(nullptr, 0, conversion.c_str(), value);
  std::string text(static_cast<size_t>(std::max(length, 0)) + 1, '\0');
  std::snprintf(text.data(), text.size(), conversion.c_str(), value);
  text.pop_back();
  return text;
}

std::string encode_utf8(uint32_t code) {
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return "?";
  const auto byte = [](uint32_t value) { return std::string(1, static_cast<char>(value)); };
  const auto continuation_byte = [&](uint32_t shift) { return byte(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) return byte(0xc0 | code >> 6) + continuation_byte(0);
  if (code < 0x10000) return byte(0xe0 | code >> 12) + continuation_byte(6) + continuation_byte(0);
  return byte(0xf0 | code >> 18) + continuation_byte(12) + continuation_byte(6) + continuation_byte(0);
}

std::string format_component(const ConversionSpecifier& conversion, std::span<const uint32_t> words) {
  const uint64_t bits = words[0] | (conversion.is_64bit ? uint64_t{words[1]} << 32 : 0);
  if (conversion.letter == 'c') return encode_utf8(words[0]);
  const std::string start = "%" + conversion.modifiers;
  if (conversion.is_float())
    return format_value(start + conversion.letter,
                        conversion.is_64bit ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(words[0])));
  const bool is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  if (is_signed) return format_value(start + "lld", conversion.is_64bit ? static_cast<long long>(bits) : static_cast<int32_t>(words[0]));
  return format_value(start + "ll" + conversion.letter, static_cast<unsigned long long>(bits));
}

}  // namespace

std::string ConversionSpecifier::describe_expected_type() const {
  const std::string type_name = is_float() ? (is_64bit ? "double" : "float") : is_64bit ? "64-bit integer" : "integer";
  if (num_components > 1) return "a vector of " + std::to_string(num_components) + " " + type_name + "s";
  return (type_name == "integer" ? "an " : "a ") + type_name;
}

std::vector<ConversionSpecifier> parse_conversions(std::string_view format) {
  std::vector<ConversionSpecifier> result;
  for (size_t at = format.find('%'); at != std::string_view::npos; at = format.find('%', at)) {
    if (format.substr(at).starts_with("%%")) {
      at += 2;
      continue;
    }
    result.push_back(ConversionParser(format, at).run());
    at = result.back().end;
  }
  return result;
}

std::string unescape_literal(std::string_view literal) {
  constexpr std::string_view kLetters = "nrt\"\\'", kMeanings = "\n\r\t\"\\'";
  std::string text;
  for (size_t i = 1; i + 1 < literal.size(); ++i) {
    if (literal[i] != '\\') {
      text += literal[i];
      continue;
    }
    const size_t meaning = kLetters.find(literal[++i]);
    if (meaning == std::string_view::npos)
      throw Error("the escape \\" + std::string(1, literal[i]) + " is unknown: expected one of \\n \\r \\t \\\" \\' \\\\");
    text += kMeanings[meaning];
  }
  return text;
}

uint32_t count_argument_words(const std::vector<ConversionSpecifier>& conversions) {
  uint32_t words = 0;
  for (const auto& conversion : conversions) words += conversion.num_words();
  return words;
}

std::string format_message(std::string_view format, const std::vector<ConversionSpecifier>& conversions, std::span<const uint32_t> words) {
  std::string text;
  const auto add_literal = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += format.substr(i).starts_with("%%") ? 2 : 1) text += format[i];
  };
  size_t literal_begin = 0;
  for (const auto& conversion : conversions) {
    add_literal(literal_begin, conversion.begin);
    for (uint32_t component = 0; component < conversion.num_components; ++component) {
      text += (component ? ", " : "") + format_component(conversion, words);
      words = words.subspan(conversion.num_words() / conversion.num_components);
    }
    literal_begin = conversion.end;
  }
  add_literal(literal_begin, format.size());
  return text;
}

}  // namespace pumice
