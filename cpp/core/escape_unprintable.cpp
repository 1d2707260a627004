#include "core/escape_unprintable.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace pumice {
namespace {

struct CodePointRange {
  uint32_t first, last;
};
// Escaped code points: C0 controls, DEL and C1 controls, Unicode format characters, line separators.
constexpr std::array kHiddenRanges = {CodePointRange{0x00, 0x1f},     CodePointRange{0x7f, 0x9f},      CodePointRange{0xad, 0xad},
                                      CodePointRange{0x61c, 0x61c},   CodePointRange{0x180e, 0x180e},  CodePointRange{0x200b, 0x200f},
                                      CodePointRange{0x2028, 0x202e}, CodePointRange{0x2060, 0x206f},  CodePointRange{0xfeff, 0xfeff},
                                      CodePointRange{0xfff9, 0xfffb}, CodePointRange{0xe0000, 0xe007f}};

struct DecodedCharacter {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not the start of a valid UTF-8 sequence
};

DecodedCharacter decode_utf8(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes > text.size() - at) return {};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(text[at + i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kFirst = {0, 0, 0x80, 0x800, 0x10000};  // minimum code point per length
  if (code < kFirst[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes};
}

bool is_hidden_code_point(uint32_t code) {
  for (const CodePointRange& range : kHiddenRanges)
    if (code >= range.first && code <= range.last) return true;
  return false;
}

std::string escape_code_point(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  char text[16];
  std::snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  return text;
}

}  // namespace

std::string escape_unprintable(std::string_view text, LineBreaks lines) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [code, bytes] = decode_utf8(text, at);
    const bool is_layout = lines == LineBreaks::keep && (code == '\n' || code == '\t');
    if (bytes == 0)
      result += escape_code_point(static_cast<uint8_t>(text[at]));
    else if (is_hidden_code_point(code) && !is_layout)
      result += escape_code_point(code);
    else
      result += text.substr(at, bytes);
    at += bytes == 0 ? 1 : bytes;
  }
  return result;
}

}  // namespace pumice
