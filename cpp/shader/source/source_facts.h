// TextFacts: the identifiers and directives of a source, which determine the shader's key and preamble. Each source is scanned once,
// because a model's kernels share most of their sources.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shader/source/tokens.h"

namespace pumice {

// Returns the words of a source: identifiers and keywords, also those in comments and directives.
std::vector<std::string_view> words_of(std::string_view text);

// Literal suffixes that need an extension: 1l is a 64-bit number, 1s a 16-bit one.
struct LiteralSuffixes {
  bool has_long = false, has_short = false;
};
LiteralSuffixes literal_suffixes(std::string_view text);

// Facts of one text. Views and tokens refer to `text`.
struct TextFacts {
  explicit TextFacts(std::string given);
  TextFacts(const TextFacts&) = delete;

  const std::string text;
  std::vector<std::string_view> words;       // without duplicates
  std::vector<std::string_view> structures;  // names after `struct`
  std::vector<std::string> includes;         // paths of #include lines
  std::vector<Token> version;                // tokens of its first #version line, from `version` on; empty if there is none
  LiteralSuffixes suffixes;
  bool pastes = false;  // macros may create names that are not in `words`
};

// Returns the facts of a source; recent ones are cached. Thread-safe.
std::shared_ptr<const TextFacts> facts_of(const std::string& text);

}  // namespace pumice
