// The lexical layer of GLSL: tokens with their places, comments and line continuations left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumice {

enum class TokenKind : uint8_t { word, number, punctuation, string };

// A piece of the text it was cut from, which must outlive it.
struct Token {
  TokenKind kind;
  uint32_t directive;  // the number of its preprocessor line; 0: it is in none
  std::string_view text;
  size_t offset;
  size_t line;  // 1 is the first
};

std::vector<Token> tokenize(std::string_view source);

// The preprocessor lines of this name, each as its tokens from the name on.
std::vector<std::vector<Token>> directives(const std::vector<Token>& tokens, std::string_view name);

// The file and line that a line of a text stands for, by its #line directives. `file` is empty until a directive names a file.
struct SourceLine {
  std::string file;
  size_t line;
};
std::vector<SourceLine> source_lines(std::string_view source);  // [0] is the first line

std::string_view line_text(std::string_view source, size_t line);  // 1 is the first; empty past the end

}  // namespace pumice
