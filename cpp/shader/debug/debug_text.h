// printf in a shader's text: the calls become calls of functions that append words to the ring.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "shader/debug/debug_table.h"
#include "shader/preamble/shader_options.h"
#include "shader/text/source_set.h"

namespace pumice {

// One compile's text with the ring. Texts in quotes, which GLSL does not have, are words while it is preprocessed.
class DebugText {
 public:
  // `sources` and `macros` as they were given.
  DebugText(const SourceSet& sources, std::string macros, const ShaderOptions& options);

  // Does the shader print, or are its accesses checked? Everything below is for that case.
  bool wanted() const { return wanted_; }
  const SourceSet& sources() const { return coded_; }
  const std::string& macros() const { return macros_; }

  // Preprocessed text that compiles. Throws ShaderCompileError for a call whose format is wrong.
  std::string rewrite(const std::string& preprocessed);
  // The compiler's messages with printf's own in place of those about the functions made here.
  std::string translate(std::string_view log) const;

  const std::vector<PrintFormat>& formats() const { return formats_; }  // formats of the text that was rewritten last

 private:
  struct Call;
  struct Edits;
  std::string add_words(const std::string& text);
  void rewrite_call(const Call& call, Edits& edits);
  ShaderCompileError error_at(const Call& call, std::string_view token, const std::string& text) const;
  std::string argument_message(std::string_view subject) const;

  const SourceSet& given_;
  SourceSet coded_;
  std::string macros_;
  ShaderOptions options_;
  bool wanted_ = false;
  std::vector<std::string> literals_;
  std::vector<PrintFormat> formats_;
  std::vector<std::string> callees_;  // by format: what the text calls printf
};

}  // namespace pumice
