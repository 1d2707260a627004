// TextFacts: the words and lines of a text from which the name of a shader, and what is put before it, are made. Each text is read once,
// since the kernels of a model share most of theirs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shader/text/tokens.h"

namespace pumice {

// The words of a text: names and keywords, also those in comments and directives.
std::vector<std::string_view> words_of(std::string_view text);

// The endings of a text's numbers that an extension has to allow: 1l is a number of 64 bits, 1s one of 16.
struct LiteralSuffixes {
  bool has_long = false, has_short = false;
};
LiteralSuffixes literal_suffixes(std::string_view text);

// Facts of one text. Views and tokens are parts of `text`.
struct TextFacts {
  explicit TextFacts(std::string given);
  TextFacts(const TextFacts&) = delete;

  const std::string text;
  std::vector<std::string_view> words;       // each once
  std::vector<std::string_view> structures;  // names behind `struct`
  std::vector<std::string> includes;         // the paths of its #include lines
  std::vector<Token> version;                // of its first #version line, from `version` on; empty where there is none
  LiteralSuffixes suffixes;
  bool pastes = false;  // whether macros may make names that the words do not show
};

// The facts of a text; those of the texts that were asked for last are kept. Thread-safe.
std::shared_ptr<const TextFacts> facts_of(const std::string& text);

}  // namespace pumice
