// One shader from text to SPIR-V, without any cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shader/shader.h"
#include "shader/text/source_set.h"

namespace pumice {

struct CompiledShader {
  std::vector<uint32_t> spirv;
  bool guarded = false;
  std::string lacks_local_size;
  std::vector<std::string> warnings;
  DebugTable debug;
};

// The part before the user's text: version, preamble, macros. Throws ShaderCompileError for a macro that is none.
struct ShaderHead {
  std::string version_and_preamble;
  std::string macros;
};
ShaderHead shader_head(const SourceSet& sources, const ShaderOptions& options, const Macros& macros);

// Loads glslang. Throws ShaderCompileError or UnsupportedError.
CompiledShader compile_to_spirv(const SourceSet& sources, const ShaderHead& head, const ShaderOptions& options,
                                const std::optional<LocalSize>& local_size);

// SPIR-V as text, by glslang: loads it.
std::string disassembled(const std::vector<uint32_t>& spirv);

}  // namespace pumice
