// Identifiers and directives of a source, which determine the shader's cache key and preamble. Each source is scanned once, because a
// model's kernels share most of their sources.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shader/source/glsl_tokens.h"

namespace pumice {

// Returns the words of a source: identifiers and keywords, also in comments and directives.
std::vector<std::string_view> find_identifiers(std::string_view text);

// Literal suffixes that need an extension: 1l is a 64-bit number, 1s a 16-bit one.
struct LiteralSuffixes {
  bool has_long = false, has_short = false;
};
LiteralSuffixes find_literal_suffixes(std::string_view text);

// The result of scanning one source. Views and tokens refer to `text`.
struct ScannedSource {
  explicit ScannedSource(std::string source_text);
  ScannedSource(const ScannedSource&) = delete;

  const std::string text;
  std::vector<std::string_view> identifiers;  // without duplicates
  std::vector<std::string_view> structures;   // names of declared structures
  std::vector<std::string> includes;          // paths of #include lines
  std::vector<Token> version;                 // tokens of its first #version line, from `version` on; empty if there is none
  LiteralSuffixes suffixes;
  bool has_token_pasting = false;  // macros may create names that are not in `identifiers`
};

// Scans a source, or returns a cached scan. Thread-safe.
std::shared_ptr<const ScannedSource> get_scanned_source(const std::string& text);

}  // namespace pumice
