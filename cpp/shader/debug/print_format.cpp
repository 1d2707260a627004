#include "shader/debug/print_format.h"

#include <locale.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "core/error.h"

namespace pumice {
namespace {

constexpr std::string_view kFlags = "-+ #0", kDigits = "0123456789";
constexpr size_t kMostDigits = 3;  // maximum number of digits of a width or a precision

// Parses one conversion, starting after its '%'.
class ConversionParser {
 public:
  ConversionParser(std::string_view format, size_t percent) : format_(format), at_(percent + 1) { result_.begin = percent; }

  Conversion run() {
    take_modifiers(kFlags, kFlags.size());
    take_modifiers(kDigits, kMostDigits);
    if (take('.')) {
      result_.modifiers += '.';
      take_modifiers(kDigits, kMostDigits);
    }
    if (take('v')) {
      if (at_ >= format_.size() || format_[at_] < '2' || format_[at_] > '4') refuse("expected 2, 3 or 4 after %v");
      result_.lanes = static_cast<uint32_t>(format_[at_++] - '0');
    }
    result_.wide = take('l');
    if (at_ >= format_.size()) refuse("a conversion without its letter");
    result_.letter = format_[at_++];
    if (!is_known()) refuse("expected one of diuoxXcfFeEgGaA");
    result_.end = at_;
    return result_;
  }

 private:
  bool take(char wanted) {
    const bool found = at_ < format_.size() && format_[at_] == wanted;
    at_ += found ? 1 : 0;
    return found;
  }

  void take_modifiers(std::string_view characters, size_t most) {
    for (; most > 0 && at_ < format_.size() && characters.find(format_[at_]) != std::string_view::npos; --most)
      result_.modifiers += format_[at_++];
  }

  bool is_known() const {
    if (result_.letter == 'c') return !result_.wide;
    return result_.is_float() || std::string_view("diuoxX").find(result_.letter) != std::string_view::npos;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("the conversion '" + std::string(format_.substr(result_.begin, at_ - result_.begin)) + "': " + what);
  }

  std::string_view format_;
  size_t at_;
  Conversion result_;
};

// Switches this thread to the C locale for the lifetime of this object.
class PlainNumbers {
 public:
  PlainNumbers() : before_(uselocale(plain())) {}
  ~PlainNumbers() { uselocale(before_); }
  PlainNumbers(const PlainNumbers&) = delete;

 private:
  static locale_t plain() {
    static const locale_t made = newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }

  locale_t before_;
};

template <typename T>
std::string printed(const std::string& conversion, T value) {
  const PlainNumbers plain;
  const int length = std::snprintf(nullptr, 0, conversion.c_str(), value);
  std::string text(static_cast<size_t>(std::max(length, 0)) + 1, '\0');
  std::snprintf(text.data(), text.size(), conversion.c_str(), value);
  text.pop_back();
  return text;
}

std::string character(uint32_t code) {
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return "?";
  const auto byte = [](uint32_t value) { return std::string(1, static_cast<char>(value)); };
  const auto tail = [&](uint32_t shift) { return byte(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) return byte(0xc0 | code >> 6) + tail(0);
  if (code < 0x10000) return byte(0xe0 | code >> 12) + tail(6) + tail(0);
  return byte(0xf0 | code >> 18) + tail(12) + tail(6) + tail(0);
}

std::string format_lane(const Conversion& conversion, std::span<const uint32_t> words) {
  const uint64_t bits = words[0] | (conversion.wide ? uint64_t{words[1]} << 32 : 0);
  if (conversion.letter == 'c') return character(words[0]);
  const std::string start = "%" + conversion.modifiers;
  if (conversion.is_float())
    return printed(start + conversion.letter,
                   conversion.wide ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(words[0])));
  const bool is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  if (is_signed) return printed(start + "lld", conversion.wide ? static_cast<long long>(bits) : static_cast<int32_t>(words[0]));
  return printed(start + "ll" + conversion.letter, static_cast<unsigned long long>(bits));
}

}  // namespace

std::string Conversion::expected() const {
  const std::string one = is_float() ? (wide ? "double" : "float") : wide ? "64-bit integer" : "integer";
  if (lanes > 1) return "a vector of " + std::to_string(lanes) + " " + one + "s";
  return (one == "integer" ? "an " : "a ") + one;
}

std::vector<Conversion> conversions_of(std::string_view format) {
  std::vector<Conversion> found;
  for (size_t at = format.find('%'); at != std::string_view::npos; at = format.find('%', at)) {
    if (format.substr(at).starts_with("%%")) {
      at += 2;
      continue;
    }
    found.push_back(ConversionParser(format, at).run());
    at = found.back().end;
  }
  return found;
}

std::string unescaped(std::string_view literal) {
  constexpr std::string_view kLetters = "nrt\"\\'", kMeanings = "\n\r\t\"\\'";
  std::string text;
  for (size_t i = 1; i + 1 < literal.size(); ++i) {
    if (literal[i] != '\\') {
      text += literal[i];
      continue;
    }
    const size_t meaning = kLetters.find(literal[++i]);
    if (meaning == std::string_view::npos)
      throw Error("the escape \\" + std::string(1, literal[i]) + " is not known: expected one of \\n \\r \\t \\\" \\' \\\\");
    text += kMeanings[meaning];
  }
  return text;
}

uint32_t words_of_arguments(const std::vector<Conversion>& conversions) {
  uint32_t words = 0;
  for (const auto& conversion : conversions) words += conversion.words();
  return words;
}

std::string format_words(std::string_view format, const std::vector<Conversion>& conversions, std::span<const uint32_t> words) {
  std::string text;
  const auto add_literal = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += format.substr(i).starts_with("%%") ? 2 : 1) text += format[i];
  };
  size_t done = 0;
  for (const auto& conversion : conversions) {
    add_literal(done, conversion.begin);
    for (uint32_t lane = 0; lane < conversion.lanes; ++lane) {
      text += (lane ? ", " : "") + format_lane(conversion, words);
      words = words.subspan(conversion.words() / conversion.lanes);
    }
    done = conversion.end;
  }
  add_literal(done, format.size());
  return text;
}

}  // namespace pumice
