// Rewrites printf calls in a shader's source into calls to functions that append to the ring buffer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "shader/debug/debug_metadata.h"
#include "shader/preamble/shader_options.h"
#include "shader/source/source_set.h"

namespace pumice {

// Adds the ring buffer to one compilation. String literals, which GLSL lacks, become identifiers during preprocessing.
class DebugInstrumentation {
 public:
  // `sources` and `macros`: the caller's, unmodified.
  DebugInstrumentation(const SourceSet& sources, std::string macros, const ShaderOptions& options);

  // Returns whether the shader calls printf or has bounds checks.
  bool is_enabled() const { return enabled_; }
  const SourceSet& sources() const { return rewritten_sources_; }
  const std::string& macros() const { return macros_; }

  // Replaces the printf calls in preprocessed source. Throws ShaderCompileError for an invalid format.
  std::string instrument(const std::string& preprocessed);
  // Replaces the compiler's messages about generated functions with messages about printf.
  std::string translate_compiler_log(std::string_view log) const;

  const std::vector<PrintfFormat>& formats() const { return formats_; }  // formats found by the last instrument()

 private:
  struct PrintfCall;
  struct TextEdits;
  std::string replace_literals(const std::string& text);
  void rewrite_printf_call(const PrintfCall& call, TextEdits& edits);
  ShaderCompileError make_error_at(const PrintfCall& call, std::string_view token, const std::string& text) const;
  std::string describe_argument_error(std::string_view subject) const;

  const SourceSet& original_sources_;
  SourceSet rewritten_sources_;
  std::string macros_;
  ShaderOptions options_;
  bool enabled_ = false;
  std::vector<std::string> literals_;
  std::vector<PrintfFormat> formats_;
  std::vector<std::string> printf_names_;  // name of the called function (printf, NCNN_LOGE, ...), one per format
};

}  // namespace pumice
