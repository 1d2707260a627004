// GLSL lexer: tokens with positions, without comments and line continuations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

enum class TokenKind : uint8_t { word, number, punctuation, string };

// A view of the source text, which must outlive it.
struct Token {
  TokenKind kind;
  uint32_t directive;  // index of its preprocessor line; 0: the token is not in a directive
  std::string_view text;
  size_t offset;
  size_t line;  // 1-based
};

std::vector<Token> tokenize(std::string_view source);

// Returns the preprocessor directives of this name, each as its tokens starting with the name.
std::vector<std::vector<Token>> find_directives(const std::vector<Token>& tokens, std::string_view name);

// The file and line that #line assigns to a physical line. `file` is empty until a directive names one.
struct SourceLine {
  std::string file;
  size_t line;
};
std::vector<SourceLine> map_source_lines(std::string_view source);  // [0] is the first line

std::string_view get_line(std::string_view source, size_t line);  // 1-based; empty past the end

}  // namespace pumice
