// Rewrites printf calls in a shader's source into calls to functions that append to the ring buffer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "shader/debug/debug_table.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/source_set.h"

namespace pumice {

// Adds the ring buffer to one compilation. String literals, which GLSL lacks, become identifiers during preprocessing.
class DebugInstrumentation {
 public:
  // `sources` and `macros`: as given by the caller.
  DebugInstrumentation(const SourceSet& sources, std::string macros, const ShaderOptions& options);

  // Returns whether the shader prints or has its accesses checked. The members below require it.
  bool enabled() const { return enabled_; }
  const SourceSet& sources() const { return rewritten_sources_; }
  const std::string& macros() const { return macros_; }

  // Returns preprocessed source that compiles. Throws ShaderCompileError for an invalid format.
  std::string rewrite(const std::string& preprocessed);
  // Replaces the compiler's messages about generated functions with messages about printf.
  std::string translate(std::string_view log) const;

  const std::vector<PrintFormat>& formats() const { return formats_; }  // formats in the source that was last rewritten

 private:
  struct PrintfCall;
  struct TextEdits;
  std::string replace_literals(const std::string& text);
  void rewrite_call(const PrintfCall& call, TextEdits& edits);
  ShaderCompileError error_at(const PrintfCall& call, std::string_view token, const std::string& text) const;
  std::string argument_message(std::string_view subject) const;

  const SourceSet& original_sources_;
  SourceSet rewritten_sources_;
  std::string macros_;
  ShaderOptions options_;
  bool enabled_ = false;
  std::vector<std::string> literals_;
  std::vector<PrintFormat> formats_;
  std::vector<std::string> printf_names_;  // the name that the source uses for printf, by format
};

}  // namespace pumice
